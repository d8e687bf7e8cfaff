#include "trace/trace_file.hpp"

#include "base/error.hpp"
#include "base/file.hpp"
#include "hdf5/hdf5_table_reader.hpp"
#include "hdf5/hdf5_table_writer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

namespace metro {

namespace {

constexpr std::int64_t chunk_rows = 1024;
// Read in blocks: a damaged file may claim more rows than there is memory, and its first block already shows it.
constexpr std::int64_t rows_at_a_time = 64 * 1024;

[[noreturn]] void fail(const std::string& path, const std::string& complaint) {
  throw Error(ExitCode::input, path + ": " + complaint);
}

TraceModel read_model(const Hdf5TableReader& file, const std::string& path) {
  if (!file.has_attribute("format") || file.text_attribute("format") != trace_format_name) {
    fail(path, fmt::format("is not a trace: attribute format must be {}", trace_format_name));
  }
  const std::int64_t version = file.integer_attribute("version");
  if (version != trace_format_version) {
    fail(path, fmt::format("has version {} of the format; this program reads {}", version, trace_format_version));
  }
  TraceModel model;
  model.family = file.text_attribute("family");
  model.origin = file.text_attribute("origin");
  model.num_experts = file.integer_attribute("num_experts");
  model.top_k = file.integer_attribute("top_k");
  model.layers = file.integers("/layers");
  check_trace_model(model, path);
  return model;
}

// The columns of a file, and how many rows all of them have.
class TraceColumns {
 public:
  TraceColumns(const Hdf5TableReader& file, const std::string& path, const TraceModel& model)
      : file_(file), path_(path), num_rows_(file.num_rows("/request")), has_weights_(file.has_dataset("/topk_weight")) {
    for (const char* name : {"/position", "/token_id", "/step", "/phase"}) {
      require_shape(name, {num_rows_});
    }
    require_shape("/topk_idx", {num_rows_, model.num_layers(), model.top_k});
    if (has_weights_) {
      require_shape("/topk_weight", {num_rows_, model.num_layers(), model.top_k});
    }
    constexpr std::int64_t most_rows = std::numeric_limits<std::uint32_t>::max();
    if (num_rows_ > most_rows) {
      fail(path, fmt::format("holds {} tokens; allowed are up to {}", num_rows_, most_rows));
    }
  }

  std::int64_t num_rows() const { return num_rows_; }

  void read_block(std::int64_t first, std::int64_t num_rows, RoutingTrace& trace) const {
    const std::int64_t width = trace.model.ids_per_token();
    append("/topk_idx", first, num_rows, width, trace.topk_idx);
    if (has_weights_) {
      append("/topk_weight", first, num_rows, width, trace.topk_weight);
    }
    append("/request", first, num_rows, 0, trace.request);
    append("/position", first, num_rows, 0, trace.position);
    append("/token_id", first, num_rows, 0, trace.token_id);
    append("/step", first, num_rows, 0, trace.step);
    for (const std::uint8_t phase : file_.rows<std::uint8_t>("/phase", first, num_rows, 0)) {
      trace.phase.push_back(static_cast<TracePhase>(phase));
    }
  }

 private:
  void require_shape(const char* name, const std::vector<std::int64_t>& needed) const {
    const std::vector<std::int64_t> found = file_.shape(name);
    if (found != needed) {
      fail(path_, fmt::format("dataset {} has shape {}, needed is {}", name, found, needed));
    }
  }

  template <class T>
  void append(const char* name, std::int64_t first, std::int64_t num_rows, std::int64_t width,
              std::vector<T>& values) const {
    const std::vector<T> block = file_.rows<T>(name, first, num_rows, width);
    values.insert(values.end(), block.begin(), block.end());
  }

  const Hdf5TableReader& file_;
  const std::string& path_;
  std::int64_t num_rows_;
  bool has_weights_;
};

}  // namespace

RoutingTrace read_trace(const std::string& path) {
  const Hdf5TableReader file(path, ExitCode::input);
  RoutingTrace trace;
  trace.model = read_model(file, path);
  const TraceColumns columns(file, path, trace.model);
  for (std::int64_t first = 0; first < columns.num_rows(); first += rows_at_a_time) {
    columns.read_block(first, std::min(rows_at_a_time, columns.num_rows() - first), trace);
    if (first == 0) {
      check_trace(trace, path);
    }
  }
  check_trace(trace, path);
  return trace;
}

struct TraceWriter::Impl {
  Hdf5TableWriter file;
  TraceModel model;
  bool with_weights;
  std::size_t topk_idx = 0, topk_weight = 0, request = 0, position = 0, token_id = 0, step = 0, phase = 0;

  Impl(const std::string& path, const TraceModel& trace_model, bool weights)
      : file(path, chunk_rows), model(trace_model), with_weights(weights) {
    file.attribute("format", std::string(trace_format_name));
    file.attribute("version", trace_format_version);
    file.attribute("family", model.family);
    file.attribute("origin", model.origin);
    file.attribute("num_experts", model.num_experts);
    file.attribute("top_k", model.top_k);
    file.integers("/layers", {model.num_layers()}, model.layers);
    const std::vector<std::int64_t> row_shape{model.num_layers(), model.top_k};
    topk_idx = file.make_column("/topk_idx", ColumnType::u16, row_shape);
    if (with_weights) {
      topk_weight = file.make_column("/topk_weight", ColumnType::f32, row_shape);
    }
    request = file.make_column("/request", ColumnType::u32, 0);
    position = file.make_column("/position", ColumnType::u32, 0);
    token_id = file.make_column("/token_id", ColumnType::i32, 0);
    step = file.make_column("/step", ColumnType::i64, 0);
    phase = file.make_column("/phase", ColumnType::u8, 0);
  }
};

TraceWriter::TraceWriter(const std::string& path, const TraceModel& model, bool with_weights) {
  check_trace_model(model, path);
  impl_ = std::make_unique<Impl>(path, model, with_weights);
}
TraceWriter::~TraceWriter() = default;

void TraceWriter::append(const RoutingTrace& tokens) {
  METRO_REQUIRE(tokens.model.layers == impl_->model.layers && tokens.model.top_k == impl_->model.top_k,
                "tokens of another model");
  METRO_REQUIRE(tokens.num_tokens() == 0 || tokens.has_weights() == impl_->with_weights, "weights");
  Hdf5TableWriter& file = impl_->file;
  file.append(impl_->topk_idx, std::span<const std::uint16_t>(tokens.topk_idx));
  if (impl_->with_weights) {
    file.append(impl_->topk_weight, std::span<const float>(tokens.topk_weight));
  }
  file.append(impl_->request, std::span<const std::uint32_t>(tokens.request));
  file.append(impl_->position, std::span<const std::uint32_t>(tokens.position));
  file.append(impl_->token_id, std::span<const std::int32_t>(tokens.token_id));
  file.append(impl_->step, std::span<const std::int64_t>(tokens.step));
  std::vector<std::uint8_t> phases(tokens.phase.size());
  std::transform(tokens.phase.begin(), tokens.phase.end(), phases.begin(),
                 [](TracePhase phase) { return static_cast<std::uint8_t>(phase); });
  file.append(impl_->phase, std::span<const std::uint8_t>(phases));
}

void TraceWriter::flush() {
  impl_->file.flush();
}

void TraceWriter::close() {
  impl_->file.close();
}

void write_trace(const RoutingTrace& trace, const std::string& path, bool overwrite) {
  check_trace(trace, path);
  require_room_for_output(path, overwrite);
  const std::string unfinished = fmt::format("{}.partial-{}", path, ::getpid());
  TraceWriter writer(unfinished, trace.model, trace.has_weights());
  writer.append(trace);
  writer.close();
  std::error_code failure;
  std::filesystem::rename(unfinished, path, failure);
  if (failure) {
    throw Error(ExitCode::machine, fmt::format("cannot rename {} to {}: {}", unfinished, path, failure.message()));
  }
}

}  // namespace metro
