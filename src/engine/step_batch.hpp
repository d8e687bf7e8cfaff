// From the plan of a step to what the forward pass is given.
#pragma once

#include "decoder/row_batch.hpp"
#include "requests/scheduler.hpp"

#include <cstdint>

namespace metro {

// The rows of `rank` in step number `step`, and how many rows every other rank has.
RowBatch batch_of(const StepPlan& plan, std::int64_t rank, std::int64_t step);

}  // namespace metro
