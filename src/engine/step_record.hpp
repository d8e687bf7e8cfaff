// The step record: what every rank tells all others after a step. Its size is known to all from the plan.
// Measured times travel with it, for rank 0 to report; nothing a rank does may depend on them.
#pragma once

#include "base/digest.hpp"
#include "report/phases.hpp"
#include "requests/sampled_token.hpp"
#include "requests/scheduler.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <map>
#include <vector>

namespace metro {

// Of one rank: the tokens of its sampling rows, then those of the prompt behind its scored rows, both in plan order.
struct RankRecord {
  std::vector<SampledToken> sampled;
  std::vector<SampledToken> prompt_scores;
  RankStep measured;  // in the step before this one
  bool stop = false;  // a signal asks this rank to stop
};

struct StepRecord {
  std::vector<std::vector<SampledToken>> sampled_of_rank;           // [num_ranks]
  std::map<std::int64_t, std::vector<SampledToken>> prompt_scores;  // by request
  std::vector<RankStep> measured_of_rank;                           // in the step before this one, [num_ranks]
  bool stop = false;                                                // of any rank
};

// What must be the same everywhere after every step.
struct AgreedState {
  Digest schedule = 0;
  Digest placement = 0;
};

// Collective. `own`: of this rank. Returns those of all ranks.
// A rank whose `state` is not that of rank 0 makes all throw AgreedError(internal) naming the ranks.
StepRecord exchange_step_record(const StepPlan& plan, const RankRecord& own, const AgreedState& state,
                                Transport& transport);

// Collective. The same for the measurements of the last step, which no record follows. [num_ranks]
std::vector<RankStep> exchange_measured(const RankStep& measured, Transport& transport);

}  // namespace metro
