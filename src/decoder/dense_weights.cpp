#include "decoder/dense_weights.hpp"

#include "base/error.hpp"
#include "checkpoint/layout.hpp"

#include <cstring>

namespace metro {

namespace {

std::vector<std::byte> read_all(WeightReader& checkpoint, const TensorInfo& info) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(info.num_bytes()));
  checkpoint.read_tensor(info.dataset, bytes);
  return bytes;
}

// Scales of a dataset; none if it is not int8.
std::vector<float> read_scales(WeightReader& checkpoint, const TensorInfo& info) {
  std::vector<float> scales;
  if (info.type == StoredType::int8) {
    const TensorInfo& of_scales = checkpoint.info(layout::scale_of(info.dataset));
    scales.resize(static_cast<std::size_t>(of_scales.num_elements()));
    checkpoint.read_tensor(of_scales.dataset, std::as_writable_bytes(std::span(scales)));
  }
  return scales;
}

}  // namespace

PackedMatrix DenseWeights::keep_packed(StoredType type, std::int64_t out, std::int64_t in, const std::byte* source,
                                       const float* scales) {
  memory_.emplace_back("dense weights", packed_bytes(type, out, in));
  num_bytes_ += memory_.back().num_bytes();
  return pack(type, out, in, source, scales, memory_.back().data());
}

PackedMatrix DenseWeights::load_matrix(WeightReader& checkpoint, const std::string& dataset) {
  const TensorInfo& info = checkpoint.info(dataset);
  METRO_REQUIRE(info.shape.size() == 2, dataset);
  const std::vector<float> scales = read_scales(checkpoint, info);
  return keep_packed(info.type, info.shape[0], info.shape[1], read_all(checkpoint, info).data(),
                     scales.empty() ? nullptr : scales.data());
}

ExpertWeights DenseWeights::load_mlp(WeightReader& checkpoint, std::int64_t layer) {
  const TensorInfo& info = checkpoint.info(layout::in_layer(layer, layout::dense_gate_up));
  const std::int64_t width = info.shape[0] / 2;
  const std::int64_t hidden = info.shape[1];
  const std::vector<std::byte> gate_up = read_all(checkpoint, info);
  const std::vector<float> scales = read_scales(checkpoint, info);
  ExpertWeights mlp;
  mlp.gate = keep_packed(info.type, width, hidden, gate_up.data(), scales.empty() ? nullptr : scales.data());
  mlp.up = keep_packed(info.type, width, hidden, gate_up.data() + width * hidden * bytes_of(info.type),
                       scales.empty() ? nullptr : scales.data() + width);
  mlp.down = load_matrix(checkpoint, layout::in_layer(layer, layout::dense_down));
  return mlp;
}

Buffer<float> DenseWeights::load_vector(WeightReader& checkpoint, const std::string& dataset) {
  const TensorInfo& info = checkpoint.info(dataset);
  const std::vector<std::byte> bytes = read_all(checkpoint, info);
  Buffer<float> values(dataset, info.num_elements());
  num_bytes_ += values.num_bytes();
  if (info.type == StoredType::f32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  for (std::int64_t i = 0; i < values.size(); ++i) {
    std::uint16_t word = 0;
    std::memcpy(&word, bytes.data() + 2 * i, 2);
    values[i] = widen_bf16(word);
  }
  return values;
}

DenseWeights::DenseWeights(WeightReader& checkpoint) {
  const ModelSpec& spec = checkpoint.spec();
  embed_ = load_matrix(checkpoint, layout::embed);
  lm_head_ = spec.tied_embeddings ? embed_ : load_matrix(checkpoint, layout::lm_head);
  norm_ = load_vector(checkpoint, layout::norm);
  layers_.resize(static_cast<std::size_t>(spec.num_layers));
  for (std::int64_t i = 0; i < spec.num_layers; ++i) {
    DenseLayer& layer = layers_[static_cast<std::size_t>(i)];
    const auto in_layer = [i](const char* name) { return layout::in_layer(i, name); };
    layer.attention_norm = load_vector(checkpoint, in_layer(layout::attention_norm));
    layer.q = load_matrix(checkpoint, in_layer(layout::attention_q));
    layer.k = load_matrix(checkpoint, in_layer(layout::attention_k));
    layer.v = load_matrix(checkpoint, in_layer(layout::attention_v));
    layer.o = load_matrix(checkpoint, in_layer(layout::attention_o));
    if (spec.attention.qk_norm_per_head) {
      layer.q_norm = load_vector(checkpoint, in_layer(layout::attention_q_norm));
      layer.k_norm = load_vector(checkpoint, in_layer(layout::attention_k_norm));
    }
    layer.mlp_norm = load_vector(checkpoint, in_layer(layout::mlp_norm));
    if (spec.layers[static_cast<std::size_t>(i)] == LayerKind::moe) {
      layer.gate = load_matrix(checkpoint, in_layer(layout::gate));
    } else {
      layer.mlp = load_mlp(checkpoint, i);
    }
  }
}

std::int64_t DenseWeights::planned_bytes(const WeightReader& checkpoint) {
  std::int64_t num_bytes = 0;
  for (const auto& [dataset, info] : checkpoint.tensors()) {
    if (info.is_expert_tensor || layout::is_scale(dataset)) {  // scales lie in the packed matrix
      continue;
    }
    if (info.shape.size() == 1) {
      num_bytes += info.num_elements() * static_cast<std::int64_t>(sizeof(float));
    } else if (dataset.ends_with(layout::dense_gate_up)) {
      num_bytes += 2 * packed_bytes(info.type, info.shape[0] / 2, info.shape[1]);
    } else {
      num_bytes += packed_bytes(info.type, info.shape[0], info.shape[1]);
    }
  }
  return num_bytes;
}

}  // namespace metro
