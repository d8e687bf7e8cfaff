#include "engine/trace_recording.hpp"

#include "base/error.hpp"

#include <numeric>
#include <utility>

namespace metro {

namespace {

// Steps between two requests to the system to have the trace on the disk.
constexpr std::int64_t steps_per_flush = 256;

TraceModel trace_model_of(const ModelSpec& spec) {
  TraceModel model;
  model.family = spec.family;
  model.origin = "recorded by metro run";
  model.num_experts = spec.moe.num_experts;
  model.top_k = spec.moe.top_k;
  for (std::int64_t layer = 0; layer < spec.num_layers; ++layer) {
    if (spec.layers[static_cast<std::size_t>(layer)] == LayerKind::moe) {
      model.layers.push_back(static_cast<std::int32_t>(layer));
    }
  }
  return model;
}

}  // namespace

TraceRecording::TraceRecording(const ModelSpec& spec, const std::string& path, Transport& transport)
    : model_(trace_model_of(spec)), transport_(&transport) {
  if (transport.rank() == 0) {
    writer_.emplace(path, model_, false);
  }
}

void TraceRecording::router_choices(std::int64_t moe_layer, std::int64_t num_rows,
                                    std::span<const std::int32_t> expert_ids, std::span<const float> weights) {
  const std::int64_t top_k = model_.top_k;
  own_.resize(static_cast<std::size_t>(num_rows * model_.ids_per_token()));
  for (std::int64_t row = 0; row < num_rows; ++row) {
    for (std::int64_t k = 0; k < top_k; ++k) {
      own_[static_cast<std::size_t>((row * model_.num_layers() + moe_layer) * top_k + k)] =
          static_cast<std::uint16_t>(expert_ids[static_cast<std::size_t>(row * top_k + k)]);
    }
  }
  if (next_ != nullptr) {
    next_->router_choices(moe_layer, num_rows, expert_ids, weights);
  }
}

void TraceRecording::routed(std::int64_t moe_layer, std::span<const std::int32_t> counts,
                            std::span<const std::int32_t> activated) {
  if (next_ != nullptr) {
    next_->routed(moe_layer, counts, activated);
  }
}

void TraceRecording::record(const StepPlan& plan, std::int64_t step) {
  const auto bytes_per_row = static_cast<std::int64_t>(sizeof(std::uint16_t)) * model_.ids_per_token();
  std::vector<std::int64_t> send_bytes(static_cast<std::size_t>(transport_->size()), 0);
  std::vector<std::int64_t> recv_bytes(send_bytes.size(), 0);
  send_bytes[0] = std::ssize(own_) * static_cast<std::int64_t>(sizeof(std::uint16_t));
  METRO_REQUIRE(send_bytes[0] == plan.num_rows(transport_->rank()) * bytes_per_row, "choices of rows are missing");
  for (std::int64_t rank = 0; rank < transport_->size() && writer_; ++rank) {
    recv_bytes[static_cast<std::size_t>(rank)] = plan.num_rows(rank) * bytes_per_row;
  }
  std::vector<std::uint16_t> all(static_cast<std::size_t>(writer_ ? plan.total_rows() * model_.ids_per_token() : 0));

  transport_->set_phase("trace");
  transport_->all_to_all(std::as_bytes(std::span(own_)), send_bytes, std::as_writable_bytes(std::span(all)),
                         recv_bytes);
  own_.clear();
  if (!writer_) {
    return;
  }
  writer_->append(trace_of(plan, step, all));
  if (step % steps_per_flush == steps_per_flush - 1) {
    writer_->flush();
  }
}

RoutingTrace TraceRecording::trace_of(const StepPlan& plan, std::int64_t step,
                                      std::span<const std::uint16_t> choices) const {
  RoutingTrace trace;
  trace.model = model_;
  trace.topk_idx.reserve(choices.size());
  for (const auto& rows_of_rank : plan.rows_of_rank) {
    for (const SequenceRows& rows : rows_of_rank) {
      const std::int64_t num_repeated = rows.num_repeated();  // a trace has no position twice
      const auto of_rows = choices.first(static_cast<std::size_t>(rows.num_rows * model_.ids_per_token()));
      choices = choices.subspan(of_rows.size());
      const auto kept = of_rows.subspan(static_cast<std::size_t>(num_repeated * model_.ids_per_token()));
      trace.topk_idx.insert(trace.topk_idx.end(), kept.begin(), kept.end());
      for (std::int64_t position = rows.first_position + num_repeated; position < rows.first_position + rows.num_rows;
           ++position) {
        trace.request.push_back(static_cast<std::uint32_t>(rows.sequence->request.id));
        trace.position.push_back(static_cast<std::uint32_t>(position));
        trace.token_id.push_back(rows.sequence->tokens[static_cast<std::size_t>(position)]);
      }
    }
  }
  trace.step.assign(trace.request.size(), step);
  trace.phase.assign(trace.request.size(), plan.kind == StepKind::decode ? TracePhase::decode : TracePhase::prefill);
  return trace;
}

void TraceRecording::close() {
  if (writer_) {
    writer_->close();
  }
}

}  // namespace metro
