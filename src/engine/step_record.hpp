// The step record: what every rank tells all others after a step. Its size is known to all from the plan.
#pragma once

#include "base/digest.hpp"
#include "requests/sampled_token.hpp"
#include "requests/scheduler.hpp"
#include "transport/transport.hpp"

#include <vector>

namespace metro {

// Collective. `sampled`: tokens of this rank's sampling rows in plan order. Returns those of all ranks [num_ranks].
// schedule_digest must be the same everywhere; a difference throws AgreedError(internal) naming the ranks.
std::vector<std::vector<SampledToken>> exchange_step_record(const StepPlan& plan,
                                                            const std::vector<SampledToken>& sampled,
                                                            Digest schedule_digest, Transport& transport);

}  // namespace metro
