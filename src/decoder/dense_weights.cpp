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

// Keys and values of heads in turn. Queries go through the keys' matrices the other way as well.
std::vector<UnitPart> parts_of_heads(const TensorInfo& info, const AttentionSpec& attention) {
  std::vector<UnitPart> parts;
  for (std::int64_t head = 0; head < attention.num_heads; ++head) {
    parts.push_back({.out = attention.latent->nope_dim, .in = info.shape[1], .has_transposed = true});
    parts.push_back({.out = attention.latent->value_dim, .in = info.shape[1]});
  }
  return parts;
}

// The matrices of a tensor, one behind the other as stored.
std::vector<UnitPart> parts_of(const TensorInfo& info, const ModelSpec& spec) {
  if (info.shape.size() == 1) {
    return {{.out = 1, .in = info.shape[0], .as_floats = true}};
  }
  METRO_REQUIRE(info.shape.size() == 2, info.dataset);
  if (info.dataset.ends_with(layout::dense_gate_up) || info.dataset.ends_with(layout::shared_gate_up)) {
    const UnitPart half{.out = info.shape[0] / 2, .in = info.shape[1]};
    return {half, half};
  }
  if (info.dataset.ends_with(layout::attention_kv_b)) {
    return parts_of_heads(info, spec.attention);
  }
  if (info.dataset.ends_with(layout::attention_kv_a)) {
    const LatentSpec& latent = spec.attention.latent.value();
    return {{.out = latent.kv_rank, .in = info.shape[1]}, {.out = latent.rope_dim, .in = info.shape[1]}};
  }
  return {{.out = info.shape[0], .in = info.shape[1]}};
}

// Gives the parts of a unit their places from `next` on: matrices of heads of one kind side by side.
void place_parts(StoredType type, std::vector<UnitPart>& parts, std::byte*& next) {
  const auto place = [&next](std::byte*& destination, std::int64_t num_bytes) {
    destination = next;
    next += aligned(num_bytes);
  };
  for (const bool with_transposed : {true, false}) {
    for (UnitPart& part : parts) {
      if (part.has_transposed == with_transposed) {
        place(part.destination, part_bytes(type, part));
      }
    }
  }
  for (UnitPart& part : parts) {
    if (part.has_transposed) {
      place(part.transposed, transposed_bytes(type, part));
    }
  }
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

  // What place_parts() laid out for parts_of_heads().
  void heads(const std::string& dataset, std::int64_t num_heads, LatentWeights& weights) const {
    const WeightUnit& unit = *units_.at(dataset);
    METRO_REQUIRE(std::ssize(unit.parts) == 2 * num_heads, dataset);
    const StoredType type = unit.tensor->type;
    const UnitPart& key = unit.parts[0];
    const UnitPart& value = unit.parts[1];
    weights.key = {key.destination, type, num_heads, key.out, key.in};
    weights.value = {value.destination, type, num_heads, value.out, value.in};
    weights.key_transposed = {key.transposed, type, num_heads, key.in, key.out};
  }

  const float* vector(const std::string& dataset) const {
    const UnitPart& part = units_.at(dataset)->parts.at(0);
    METRO_REQUIRE(part.as_floats, dataset);
    return reinterpret_cast<const float*>(part.destination);
  }

 private:
  std::map<std::string, const WeightUnit*> units_;
};

// What the two datasets of an MLP hold.
ExpertWeights mlp_of(const Found& found, const std::string& gate_up, const std::string& down,
                     const Activation& activation) {
  return {found.matrix(gate_up, 0), found.matrix(gate_up, 1), found.matrix(down), activation};
}

Norm norm_of(const Found& found, const ModelSpec& spec, const std::string& dataset) {
  const bool has_bias = spec.norm == NormKind::layer;
  return {spec.norm, found.vector(dataset), has_bias ? found.vector(layout::bias_of(dataset)) : nullptr, spec.norm_eps};
}

LatentWeights latent_of(const Found& found, const AttentionSpec& attention, std::int64_t layer) {
  const auto in_layer = [layer](const char* name) { return layout::in_layer(layer, name); };
  const auto norm = [&](const char* name) {
    return Norm{.weight = found.vector(in_layer(name)), .eps = attention.latent->norm_eps};
  };
  LatentWeights weights;
  if (attention.latent->query_rank > 0) {
    weights.q_a = found.matrix(in_layer(layout::attention_q_a));
    weights.q_a_norm = norm(layout::attention_q_a_norm);
  }
  weights.latent = found.matrix(in_layer(layout::attention_kv_a), 0);
  weights.rotated_key = found.matrix(in_layer(layout::attention_kv_a), 1);
  weights.latent_norm = norm(layout::attention_kv_a_norm);
  found.heads(in_layer(layout::attention_kv_b), attention.num_heads, weights);
  return weights;
}

DenseLayer layer_of(const Found& found, const ModelSpec& spec, std::int64_t layer) {
  const auto in_layer = [layer](const char* name) { return layout::in_layer(layer, name); };
  DenseLayer weights;
  weights.attention_norm = norm_of(found, spec, in_layer(layout::attention_norm));
  weights.q = found.matrix(in_layer(layout::attention_q));
  if (spec.attention.latent) {
    weights.latent = latent_of(found, spec.attention, layer);
  } else {
    weights.k = found.matrix(in_layer(layout::attention_k));
    weights.v = found.matrix(in_layer(layout::attention_v));
  }
  weights.o = found.matrix(in_layer(layout::attention_o));
  if (spec.attention.query_key_norm != QueryKeyNorm::none) {
    weights.q_norm = found.vector(in_layer(layout::attention_q_norm));
    weights.k_norm = found.vector(in_layer(layout::attention_k_norm));
  }
  if (spec.attention.has_sinks) {
    weights.sinks = found.vector(in_layer(layout::attention_sinks));
  }
  weights.mlp_norm = norm_of(found, spec, in_layer(layout::mlp_norm));
  if (spec.layers[at(layer)] == LayerKind::moe) {
    weights.router.weights = found.matrix(in_layer(layout::gate));
    if (spec.moe.shared_width > 0) {
      weights.shared =
          mlp_of(found, in_layer(layout::shared_gate_up), in_layer(layout::shared_down), spec.moe.activation);
    }
    if (spec.moe.shared_is_gated) {
      weights.shared_gate = found.matrix(in_layer(layout::shared_gate));
    }
    if (spec.moe.gate.has_correction) {
      weights.router.correction = found.vector(in_layer(layout::gate_correction));
    }
  } else {
    weights.mlp = mlp_of(found, in_layer(layout::dense_gate_up), in_layer(layout::dense_down), {});
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
    WeightUnit& unit = units.emplace_back(weight_unit(checkpoint, info, 0, parts_of(info, checkpoint.spec())));
    place_parts(info.type, unit.parts, next);
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
  norm_ = norm_of(found, spec, layout::norm);
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
    for (const UnitPart& part : weight_unit(checkpoint, info, 0, parts_of(info, checkpoint.spec())).parts) {
      num_bytes += aligned(part_bytes(info.type, part)) + aligned(transposed_bytes(info.type, part));
    }
  }
  return num_bytes;
}

}  // namespace metro
