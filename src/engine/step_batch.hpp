// From the plan of a step to what the forward pass is given.
#pragma once

#include "decoder/row_batch.hpp"
#include "requests/scheduler.hpp"

#include <cstdint>

namespace metro {

// The rows of `rank` in step number `step`, and how many rows every other rank has. rope_positions: of one set of
// angles in the RoPE table, where it has several; else 0.
RowBatch batch_of(const StepPlan& plan, std::int64_t rank, std::int64_t step, std::int64_t rope_positions = 0);

}  // namespace metro
