// Trace files (HDF5): a trace of three tokens with changed bytes (hdf5_patches.hpp).
#include "base/file.hpp"
#include "fuzz/fuzz_target.hpp"
#include "fuzz/hdf5_patches.hpp"
#include "trace/trace_file.hpp"

namespace metro::fuzz {

namespace {

std::string valid_file() {
  RoutingTrace trace;
  trace.model = {"qwen3_moe", "made for fuzzing", 4, 2, {0, 1}};
  trace.topk_idx = {0, 1, 2, 3, 1, 0, 3, 2, 0, 2, 1, 3};
  trace.topk_weight.assign(trace.topk_idx.size(), 0.5F);
  trace.request = {0, 0, 1};
  trace.position = {0, 1, 0};
  trace.token_id = {5, 6, 7};
  trace.step = {0, 1, 1};
  trace.phase.assign(3, TracePhase::decode);
  const std::string path = scratch().file("valid.h5");
  write_trace(trace, path, true);
  return read_file(path, ExitCode::input);
}

}  // namespace

int fuzz_one(const std::uint8_t* data, std::size_t size) {
  static const std::string valid = valid_file();
  static const std::string path = scratch().file("trace.h5");
  put_file(path, patched(valid, as_text(data, size)));
  expect_error_at_most([] { read_trace(path); });
  return 0;
}

}  // namespace metro::fuzz
