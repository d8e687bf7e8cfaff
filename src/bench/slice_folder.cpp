#include "bench/slice_folder.hpp"

#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/integers.hpp"
#include "bench/random_words.hpp"
#include "checkpoint/file_descriptor.hpp"
#include "model/family.hpp"
#include "model/quantization.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

namespace metro {

namespace {

using nlohmann::json;

json parsed(const std::string& config_json) {
  json config = json::parse(config_json, nullptr, false);
  if (!config.is_object()) {
    throw Error(ExitCode::checkpoint, "config.json: must be a JSON object");
  }
  return config;
}

std::uint64_t in_all_bytes(std::uint64_t byte) {
  return byte * 0x0101010101010101U;
}

// Weights of about 1 / sqrt(inputs), with their scales where they have any.
WordPattern pattern_of(const SliceTensor& tensor) {
  if (tensor.dtype == "F8_E4M3") {
    return {in_all_bytes(0x8f), in_all_bytes(0x30)};  // 0.5 .. 1.9 with either sign
  }
  if (tensor.dtype == "U8" && tensor.name.ends_with(mxfp4_scales_suffix)) {
    const std::int64_t exponent = exponent_of_weights(tensor.row_length) - 2;  // the values are up to 6
    return {0, in_all_bytes(static_cast<std::uint64_t>(127 + exponent))};
  }
  if (tensor.dtype == "U8") {
    return {~std::uint64_t{0}, 0};
  }
  if (tensor.dtype == "F32") {
    std::uint32_t word = 0;
    const float scale = 1.0F / std::sqrt(static_cast<float>(tensor.row_length));
    std::memcpy(&word, &scale, sizeof word);
    return {0, std::uint64_t{word} << 32 | word};
  }
  if (tensor.shape.size() == 1) {
    return {0, 0x3f803f803f803f80U};  // 1 in bf16
  }
  return bf16_pattern(exponent_of_weights(tensor.row_length));
}

std::string header_of(std::span<const SliceTensor> tensors) {
  json header = json::object();
  std::int64_t offset = 0;
  for (const SliceTensor& tensor : tensors) {
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + tensor.num_bytes()}}};
    offset += tensor.num_bytes();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

void write_shard(std::span<const SliceTensor> tensors, const std::string& path) {
  constexpr std::int64_t bytes_at_once = std::int64_t{1} << 20;
  const std::string header = header_of(tensors);
  FileDescriptor file = FileDescriptor::create(path);
  const auto header_bytes = static_cast<std::uint64_t>(header.size());
  file.write_at(0, std::as_bytes(std::span(&header_bytes, 1)));
  file.write_at(sizeof header_bytes, std::as_bytes(std::span(header)));
  auto offset = static_cast<std::int64_t>(sizeof header_bytes + header.size());
  std::vector<std::byte> piece(at(bytes_at_once));
  for (const SliceTensor& tensor : tensors) {
    const WordPattern pattern = pattern_of(tensor);
    const std::uint64_t seed = digest_of(tensor.name);
    for (std::int64_t first = 0; first < tensor.num_bytes(); first += bytes_at_once) {
      const auto bytes = std::span(piece).first(at(std::min(bytes_at_once, tensor.num_bytes() - first)));
      fill_with_words(pattern, seed, first / std::int64_t{sizeof(std::uint64_t)}, bytes);
      file.write_at(offset, bytes);
      offset += std::ssize(bytes);
    }
  }
  file.sync_and_close();
}

// The first tensors of `tensors` that make a shard.
std::size_t num_of_shard(std::span<const SliceTensor> tensors, std::int64_t shard_bytes) {
  std::int64_t num_bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    num_bytes += tensors[i].num_bytes();
    if (num_bytes > shard_bytes && i > 0) {
      return i;
    }
  }
  return tensors.size();
}

// The tensors of a folder for `name`, a part of `source`.
void append_published(const TensorSource& source, StoredType type, const std::string& name,
                      std::vector<SliceTensor>& tensors) {
  const std::vector<std::int64_t> matrix = matrix_shape(source);
  const std::int64_t row_length = matrix.size() == 1 ? 1 : matrix.back();
  if (type == StoredType::mxfp4) {
    std::vector<std::int64_t> shape = source.order.holds_all_experts ? source.shape : matrix;
    shape.back() /= mxfp4_block;
    tensors.push_back({name + mxfp4_scales_suffix, "U8", shape, row_length});
    shape.push_back(mxfp4_block / 2);
    tensors.push_back({name + mxfp4_blocks_suffix, "U8", shape, row_length});
    return;
  }
  tensors.push_back({name, type == StoredType::fp8 ? "F8_E4M3" : "BF16", part_shape(source), row_length});
  if (type == StoredType::fp8) {
    tensors.push_back({name + fp8_scales_suffix,
                       "F32",
                       {ceil_div(matrix[0], fp8_block), ceil_div(row_length, fp8_block)},
                       row_length});
  }
}

}  // namespace

std::int64_t SliceTensor::num_bytes() const {
  std::int64_t count = dtype == "F32" ? 4 : dtype == "BF16" ? 2 : 1;
  for (const std::int64_t extent : shape) {
    count *= extent;
  }
  return count;
}

std::string slice_config(const std::string& config_json, std::int64_t num_layers) {
  json config = parsed(config_json);
  const auto of_model = config.value("num_hidden_layers", std::int64_t{0});
  if (num_layers < 1 || num_layers > of_model) {
    throw Error(ExitCode::usage, fmt::format("bench convert: --layers {}: must be from 1 to {}", num_layers, of_model));
  }
  config["num_hidden_layers"] = num_layers;
  if (const auto dense = config.find("first_k_dense_replace"); dense != config.end() && dense->is_number_integer()) {
    *dense = std::min(dense->get<std::int64_t>(), num_layers - 1);
  }
  if (const auto types = config.find("layer_types"); types != config.end() && types->is_array()) {
    types->erase(types->begin() + std::min(num_layers, static_cast<std::int64_t>(types->size())), types->end());
  }
  return config.dump(1) + "\n";
}

std::vector<SliceTensor> slice_tensors(const std::string& config_json) {
  const PublishedTypes published(config_json);
  std::vector<SliceTensor> tensors;
  for (const TensorSource& source : tensor_sources(parse_model_spec(config_json, std::nullopt))) {
    for (const std::string& name : source.parts) {
      append_published(source, published.type_of(source), name, tensors);
    }
  }
  return tensors;
}

std::int64_t write_slice(const std::string& config_json, const std::string& folder, std::int64_t shard_bytes) {
  const std::vector<SliceTensor> tensors = slice_tensors(config_json);
  make_new_folder(folder, folder);
  json map = json::object();
  std::int64_t total_bytes = 0;
  std::int64_t shard = 0;
  for (std::span<const SliceTensor> left = tensors; !left.empty(); ++shard) {
    const auto of_shard = left.first(num_of_shard(left, shard_bytes));
    const std::string name = fmt::format("model-{:05}.safetensors", shard + 1);
    write_shard(of_shard, folder + "/" + name);
    for (const SliceTensor& tensor : of_shard) {
      map[tensor.name] = name;
      total_bytes += tensor.num_bytes();
    }
    left = left.subspan(of_shard.size());
  }
  const json index = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", std::move(map)}};
  write_file_atomically(folder + "/model.safetensors.index.json", index.dump(1) + "\n");
  write_file_atomically(folder + "/config.json", config_json);
  return total_bytes;
}

}  // namespace metro
