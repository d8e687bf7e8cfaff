// Hugging Face folders whose linear layers are fp8 or mxfp4 as published, made from a folder of floats; and beside each
// the folder of fp32 weights that holds exactly the numbers these stand for. Codes and scales come from here.
#pragma once

#include "base/file.hpp"
#include "checkpoint/safetensors_text.hpp"
#include "support/scaled_codes.hpp"
#include "support/scratch_folder.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace metro::test {

enum class Scaled { fp8, mxfp4 };

class ScaledFolders {
 public:
  ScaledFolders(const std::string& source, Scaled form) : form_(form) {
    for (const auto& file : std::filesystem::directory_iterator(source)) {
      if (file.path().extension() == ".safetensors") {
        published.merge(read_safetensors(file.path().string()));
      }
    }
    for (const auto& [name, tensor] : RawTensors(published)) {
      if (is_scaled(name)) {
        scale(name, tensor);
      } else {
        widened[name] = tensor;
      }
    }
    config = nlohmann::json::parse(read_file(source + "/config.json", ExitCode::input));
    write_config(widened_folder_, config);
    config["quantization_config"] = form == Scaled::fp8 ? nlohmann::json{{"activation_scheme", "dynamic"},
                                                                         {"quant_method", "fp8"},
                                                                         {"weight_block_size", {128, 128}}}
                                                        : nlohmann::json{{"quant_method", "mxfp4"}};
  }

  // Write the tensors, which a test may have changed, and return the path of the folder.
  std::string write_published() const {
    write_config(published_folder_, config);
    write_safetensors(published_folder_.file("model.safetensors"), published);
    return published_folder_.path().string();
  }
  std::string write_widened() const {
    write_safetensors(widened_folder_.file("model.safetensors"), widened);
    return widened_folder_.path().string();
  }

  RawTensors published, widened;
  nlohmann::json config;  // of the published folder

 private:
  static void write_config(const ScratchFolder& folder, const nlohmann::json& config) {
    write_file_atomically(folder.file("config.json"), config.dump());
  }

  bool is_scaled(const std::string& name) const {
    return name.ends_with("_proj.weight") && (form_ == Scaled::fp8 || name.find(".mlp.experts.") != std::string::npos);
  }

  static std::vector<float> floats_of(const RawTensor& tensor) {
    const std::size_t size = tensor.dtype == "BF16" ? 2 : 4;
    std::vector<float> values(tensor.bytes.size() / size, 0.0F);
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::memcpy(reinterpret_cast<char*>(&values[i]) + 4 - size, tensor.bytes.data() + i * size, size);
    }
    return values;
  }

  template <class T>
  static std::string bytes_of(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
  }

  // The code whose value is nearest; codes 0 .. num_codes - 1 ascend, those from `sign` on are negative.
  template <class Value>
  static unsigned nearest(double wanted, unsigned num_codes, unsigned sign, const Value& value) {
    const double size = std::abs(wanted);
    unsigned low = 0, high = num_codes - 1;
    while (high - low > 1) {
      const unsigned middle = (low + high) / 2;
      (value(middle) <= size ? low : high) = middle;
    }
    const unsigned best = size - value(low) <= value(high) - size ? low : high;
    return wanted < 0.0 ? best | sign : best;
  }

  void scale(const std::string& name, const RawTensor& tensor) {
    const std::vector<float> values = floats_of(tensor);
    const auto rows = static_cast<std::size_t>(tensor.shape[0]);
    const auto columns = static_cast<std::size_t>(tensor.shape[1]);
    published.erase(name);
    widened[name] = {"F32", tensor.shape, {}};
    std::vector<float> numbers(values.size());
    if (form_ == Scaled::fp8) {
      scale_fp8(name, values, rows, columns, numbers);
    } else {
      scale_mxfp4(name, values, rows, columns, numbers);
    }
    widened[name].bytes = bytes_of(numbers);
  }

  void scale_fp8(const std::string& name, const std::vector<float>& values, std::size_t rows, std::size_t columns,
                 std::vector<float>& numbers) {
    const std::size_t block_columns = (columns + 127) / 128;
    std::vector<float> scales((rows + 127) / 128 * block_columns, 0.0F);
    const auto scale_at = [&](std::size_t i) -> float& {
      return scales[i / columns / 128 * block_columns + i % columns / 128];
    };
    for (std::size_t i = 0; i < values.size(); ++i) {
      scale_at(i) = std::max(scale_at(i), std::abs(values[i]) / 448.0F);
    }
    std::vector<unsigned char> codes;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double wanted = static_cast<double>(values[i]) / static_cast<double>(scale_at(i));
      codes.push_back(static_cast<unsigned char>(nearest(wanted, 127U, 128U, e4m3_value)));
      // Exact in double precision, then rounded once.
      numbers[i] = static_cast<float>(e4m3_value(codes.back()) * static_cast<double>(scale_at(i)));
    }
    const auto num_rows = static_cast<std::int64_t>(rows), num_columns = static_cast<std::int64_t>(columns);
    published[name] = {"F8_E4M3", {num_rows, num_columns}, bytes_of(codes)};
    published[name + "_scale_inv"] = {"F32", {(num_rows + 127) / 128, (num_columns + 127) / 128}, bytes_of(scales)};
  }

  void scale_mxfp4(const std::string& name, const std::vector<float>& values, std::size_t rows, std::size_t columns,
                   std::vector<float>& numbers) {
    std::vector<unsigned char> exponents, pairs(values.size() / 2, 0);
    for (std::size_t first = 0; first < values.size(); first += 32) {
      float largest = 0.0F;
      for (std::size_t i = first; i < first + 32; ++i) {
        largest = std::max(largest, std::abs(values[i]));
      }
      const int exponent = std::max(std::ilogb(largest) - 2, -127);
      exponents.push_back(static_cast<unsigned char>(exponent + 127));
      for (std::size_t i = first; i < first + 32; ++i) {
        const unsigned code = nearest(std::ldexp(static_cast<double>(values[i]), -exponent), 8U, 8U, e2m1_value);
        pairs[i / 2] = static_cast<unsigned char>(pairs[i / 2] | code << (i % 2 * 4));
        numbers[i] = static_cast<float>(std::ldexp(e2m1_value(code), exponent));
      }
    }
    const auto num_rows = static_cast<std::int64_t>(rows), num_blocks = static_cast<std::int64_t>(columns / 32);
    published[name + "_blocks"] = {"U8", {num_rows, num_blocks, 16}, bytes_of(pairs)};
    published[name + "_scales"] = {"U8", {num_rows, num_blocks}, bytes_of(exponents)};
  }

  Scaled form_;
  ScratchFolder published_folder_, widened_folder_;
};

}  // namespace metro::test
