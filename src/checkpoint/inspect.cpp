#include "checkpoint/inspect.hpp"

#include "base/error.hpp"

#include <fmt/format.h>

#include <string_view>
#include <vector>

namespace metro {

namespace {

// "1.5 GiB"; exact below 1 KiB.
std::string shown_bytes(std::int64_t bytes) {
  if (bytes < 1024) {
    return fmt::format("{} B", bytes);
  }
  double amount = static_cast<double>(bytes) / 1024.0;
  const char* unit = "KiB";
  for (const char* larger : {"MiB", "GiB", "TiB"}) {
    if (amount < 1024.0) {
      break;
    }
    amount /= 1024.0;
    unit = larger;
  }
  return fmt::format("{:.1f} {}", amount, unit);
}

std::string yes_or_no(bool value) {
  return value ? "yes" : "no";
}

std::string describe_attention(const ModelSpec& spec) {
  const AttentionSpec& attention = spec.attention;
  if (!attention.latent) {
    return fmt::format("{} query heads, {} KV heads, {} elements each", attention.num_heads, attention.num_kv_heads,
                       attention.head_dim);
  }
  const LatentSpec& latent = *attention.latent;
  return fmt::format("{} heads over latents of {} and a rotated key of {}; keys of {}, values of {}",
                     attention.num_heads, latent.kv_rank, latent.rope_dim, attention.head_dim, latent.value_dim);
}

// In the KV cache, of a layer.
std::int64_t cached_bytes(const ModelSpec& spec) {
  return spec.cached_values() * static_cast<std::int64_t>(sizeof(float));
}

std::string describe_model(const ModelSpec& spec) {
  std::string text;
  const auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<22} {}\n", name, value);
  };
  line("family", spec.family);
  line("layers", fmt::format("{}, {} of them with experts", spec.num_layers, spec.num_moe_layers()));
  line("hidden size", fmt::format("{}", spec.hidden_size));
  line("vocabulary", fmt::format("{}{}", spec.vocab_size, spec.tied_embeddings ? ", embedding is also the head" : ""));
  line("longest sequence", fmt::format("{} tokens", spec.max_positions));
  line("attention", describe_attention(spec));
  line("cached per token",
       fmt::format("{} bytes, {} in each layer", spec.num_layers * cached_bytes(spec), cached_bytes(spec)));
  line("rope theta", fmt::format("{}, scaling: {}", spec.rope.theta, spec.rope.scaling));
  line("experts", fmt::format("{} of width {}, top {}, weights renormalised: {}", spec.moe.num_experts,
                              spec.moe.intermediate_size, spec.moe.top_k, yes_or_no(spec.moe.gate.normalise)));
  if (spec.moe.shared_width > 0) {
    line("shared expert",
         fmt::format("width {}, gated: {}", spec.moe.shared_width, yes_or_no(spec.moe.shared_is_gated)));
  }
  if (spec.num_moe_layers() < spec.num_layers) {
    line("dense MLP width", fmt::format("{}", spec.dense_intermediate_size));
  }
  line("end tokens", fmt::format("{}", fmt::join(spec.end_tokens, ", ")));
  return text;
}

std::string describe_tensors(const CheckpointReader& reader) {
  std::string text;
  std::int64_t total_bytes = 0;
  for (const auto& [name, tensor] : reader.tensors()) {
    const std::string shape = fmt::format("[{}]", fmt::join(tensor.shape, ", "));
    text +=
        fmt::format("  {:<32} {:<18} {:<5} {:>10}", name, shape, name_of(tensor.type), shown_bytes(tensor.num_bytes()));
    if (tensor.is_expert_tensor) {
      text += fmt::format("  {} experts of {}", tensor.shape.front(),
                          shown_bytes(tensor.num_bytes() / tensor.shape.front()));
    }
    text += "\n";
    total_bytes += tensor.num_bytes();
  }
  return fmt::format("tensors ({}, {}):\n{}", reader.tensors().size(), shown_bytes(total_bytes), text);
}

std::string describe(const CheckpointReader& reader) {
  std::string text = fmt::format("{}: written by {}, digest {}\nmodel:\n{}", reader.path(), one_line(reader.producer()),
                                 to_hex(reader.digest()), describe_model(reader.spec()));
  text += "source files:\n";
  for (const std::string& name : reader.source_file_names()) {
    text += fmt::format("  {:<32} {:>10}\n", one_line(name),
                        shown_bytes(static_cast<std::int64_t>(reader.source_file(name)->size())));
  }
  return text + describe_tensors(reader);
}

// Reads everything; a damaged tensor or source file throws. Experts one by one, so that one of them fits in memory.
void verify_all(CheckpointReader& reader) {
  std::vector<std::byte> buffer;
  for (const auto& [name, tensor] : reader.tensors()) {
    const std::int64_t num_units = tensor.is_expert_tensor ? tensor.shape.front() : 1;
    buffer.resize(static_cast<std::size_t>(tensor.num_bytes() / num_units));
    for (std::int64_t unit = 0; unit < num_units; ++unit) {
      if (tensor.is_expert_tensor) {
        reader.read_expert(name, unit, buffer);
      } else {
        reader.read_tensor(name, buffer);
      }
    }
  }
}

void print(std::FILE* out, const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), out) != text.size() || std::fflush(out) != 0) {
    throw Error(ExitCode::usage, "cannot write the description of the checkpoint");
  }
}

}  // namespace

void inspect_checkpoint(CheckpointReader& reader, bool verify, std::FILE* out) {
  print(out, describe(reader));
  if (verify) {
    verify_all(reader);
    print(out, fmt::format("verified: all {} tensors have their digests ({} read)\n", reader.tensors().size(),
                           shown_bytes(reader.bytes_read())));
  }
}

}  // namespace metro
