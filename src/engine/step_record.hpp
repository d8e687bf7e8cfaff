// The step record: what every rank tells all others after a step. Its size is known to all from the plan.
// Measured times travel with it, for rank 0 to report; nothing a rank does may depend on them.
#pragma once

#include "base/digest.hpp"
#include "report/phases.hpp"
#include "requests/sampled_token.hpp"
#include "requests/scheduler.hpp"
#include "transport/transport.hpp"

#include <span>
#include <vector>

namespace metro {

// Collective. `sampled`: tokens of this rank's sampling rows in plan order. Returns those of all ranks [num_ranks].
// schedule_digest must be the same everywhere; a difference throws AgreedError(internal) naming the ranks.
// `measured`: of this rank in the step before this one. measured_of_rank [num_ranks], written: of all ranks.
std::vector<std::vector<SampledToken>> exchange_step_record(const StepPlan& plan,
                                                            const std::vector<SampledToken>& sampled,
                                                            Digest schedule_digest, const RankStep& measured,
                                                            std::span<RankStep> measured_of_rank, Transport& transport);

// Collective. The same for the measurements of the last step, which no record follows.
void exchange_measured(const RankStep& measured, std::span<RankStep> measured_of_rank, Transport& transport);

}  // namespace metro
