#include "decoder/dense_weights.hpp"

#include "base/error.hpp"
#include "base/integers.hpp"
#include "checkpoint/layout.hpp"
#include "decoder/weight_loader.hpp"
#include "kernels/cpu_settings.hpp"
#include "transport/agree.hpp"

#include <map>
#include <string>

namespace metro {

namespace {

// Tensors begin at cache lines.
constexpr std::int64_t alignment = 64;

std::int64_t aligned(std::int64_t num_bytes) {
  return ceil_div(num_bytes, alignment) * alignment;
}

bool is_dense(const WeightReader& checkpoint, const TensorInfo& info) {
  return !info.is_expert_tensor && !is_packed_with_weights(checkpoint, info);
}

// The matrices of a tensor, one behind the other as stored.
std::vector<UnitPart> parts_of(const TensorInfo& info) {
  if (info.shape.size() == 1) {
    return {{.out = 1, .in = info.shape[0], .as_floats = true}};
  }
  METRO_REQUIRE(info.shape.size() == 2, info.dataset);
  if (info.dataset.ends_with(layout::dense_gate_up)) {
    const UnitPart half{.out = info.shape[0] / 2, .in = info.shape[1]};
    return {half, half};
  }
  return {{.out = info.shape[0], .in = info.shape[1]}};
}

// What has been laid out, by name.
class Found {
 public:
  explicit Found(const std::vector<WeightUnit>& units) {
    for (const WeightUnit& unit : units) {
      units_.emplace(unit.tensor->dataset, &unit);
    }
  }

  PackedMatrix matrix(const std::string& dataset, std::size_t part_idx = 0) const {
    const WeightUnit& unit = *units_.at(dataset);
    const UnitPart& part = unit.parts.at(part_idx);
    METRO_REQUIRE(!part.as_floats, dataset);
    return {part.destination, unit.tensor->type, part.out, part.in, part.has_bias};
  }

  const float* vector(const std::string& dataset) const {
    const UnitPart& part = units_.at(dataset)->parts.at(0);
    METRO_REQUIRE(part.as_floats, dataset);
    return reinterpret_cast<const float*>(part.destination);
  }

 private:
  std::map<std::string, const WeightUnit*> units_;
};

DenseLayer layer_of(const Found& found, const ModelSpec& spec, std::int64_t layer) {
  const auto in_layer = [layer](const char* name) { return layout::in_layer(layer, name); };
  DenseLayer weights;
  weights.attention_norm = found.vector(in_layer(layout::attention_norm));
  weights.q = found.matrix(in_layer(layout::attention_q));
  weights.k = found.matrix(in_layer(layout::attention_k));
  weights.v = found.matrix(in_layer(layout::attention_v));
  weights.o = found.matrix(in_layer(layout::attention_o));
  if (spec.attention.query_key_norm != QueryKeyNorm::none) {
    weights.q_norm = found.vector(in_layer(layout::attention_q_norm));
    weights.k_norm = found.vector(in_layer(layout::attention_k_norm));
  }
  weights.mlp_norm = found.vector(in_layer(layout::mlp_norm));
  if (spec.layers[at(layer)] == LayerKind::moe) {
    weights.router.weights = found.matrix(in_layer(layout::gate));
  } else {
    weights.mlp = {found.matrix(in_layer(layout::dense_gate_up), 0), found.matrix(in_layer(layout::dense_gate_up), 1),
                   found.matrix(in_layer(layout::dense_down))};
  }
  return weights;
}

// Those that one of several ranks loads for all of them: neighbours in the list, about as many bytes as the others.
std::vector<WeightUnit> share_of(const std::vector<WeightUnit>& units, std::int64_t sharer_idx,
                                 std::int64_t num_sharers) {
  std::int64_t total = 0;
  for (const WeightUnit& unit : units) {
    total += unit.num_bytes();
  }
  std::vector<WeightUnit> share;
  std::int64_t before = 0;
  for (const WeightUnit& unit : units) {
    // A unit belongs to the rank in whose stretch of all bytes its middle lies.
    const std::int64_t middle = before + unit.num_bytes() / 2;
    if (middle * num_sharers / total == sharer_idx) {
      share.push_back(unit);
    }
    before += unit.num_bytes();
  }
  return share;
}

}  // namespace

std::vector<WeightUnit> dense_units(const WeightReader& checkpoint, std::span<std::byte> memory) {
  std::vector<WeightUnit> units;
  std::byte* next = memory.data();
  for (const auto& [dataset, info] : checkpoint.tensors()) {
    if (!is_dense(checkpoint, info)) {
      continue;
    }
    WeightUnit& unit = units.emplace_back(weight_unit(checkpoint, info, 0, parts_of(info)));
    for (UnitPart& part : unit.parts) {
      part.destination = next;
      next += aligned(part_bytes(info.type, part));
    }
  }
  METRO_REQUIRE(next == memory.data() + memory.size(), "the tensors do not fill their memory");
  return units;
}

DenseWeights::DenseWeights(const WeightReader& checkpoint, Sharing sharing, Transport& transport)
    : memory_("dense weights", planned_bytes(checkpoint), sharing, transport) {
  const std::vector<WeightUnit> units = dense_units(checkpoint, memory_.bytes());
  const Found found(units);
  const ModelSpec& spec = checkpoint.spec();
  embed_ = found.matrix(layout::embed);
  lm_head_ = spec.tied_embeddings ? embed_ : found.matrix(layout::lm_head);
  norm_ = found.vector(layout::norm);
  for (std::int64_t i = 0; i < spec.num_layers; ++i) {
    layers_.push_back(layer_of(found, spec, i));
  }
  agree(transport, [&] {
    load_units(checkpoint, share_of(units, memory_.sharer_idx(), memory_.num_sharers()), num_kernel_threads());
  });
  memory_.publish();
}

std::int64_t DenseWeights::planned_bytes(const WeightReader& checkpoint) {
  std::int64_t num_bytes = 0;
  for (const auto& [dataset, info] : checkpoint.tensors()) {
    if (!is_dense(checkpoint, info)) {
      continue;
    }
    for (const UnitPart& part : weight_unit(checkpoint, info, 0, parts_of(info)).parts) {
      num_bytes += aligned(part_bytes(info.type, part));
    }
  }
  return num_bytes;
}

}  // namespace metro
