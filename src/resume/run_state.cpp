// The file: the name of the format with its version, the digest of all that follows, then the state.
#include "resume/run_state.hpp"

#include "base/byte_packing.hpp"
#include "base/digest.hpp"
#include "base/file.hpp"

#include <fmt/format.h>

namespace metro {

namespace {

// Another version for any change of this format, of the journal, or of the lines of the output.
constexpr std::string_view format_line = "metro-run-state 1\n";

void pack_request(const EarlierRequest& request, ByteWriter& bytes) {
  bytes.value(request.line.number);
  bytes.value(request.line.digest);
  bytes.value(static_cast<std::int64_t>(request.samples.size()));
  for (const EarlierSample& sample : request.samples) {
    bytes.value(static_cast<std::int32_t>(sample.reason));
    pack_tokens(sample.tokens, bytes);
  }
  pack_tokens(request.prompt_scores, bytes);
}

EarlierRequest unpack_request(ByteReader& bytes) {
  EarlierRequest request;
  request.line.number = bytes.value<std::int64_t>();
  request.line.digest = bytes.value<Digest>();
  if (request.line.number < 1) {
    throw MalformedBytes(fmt::format("line {}", request.line.number));
  }
  const std::int64_t num_samples = bytes.count(sizeof(std::int32_t) + sizeof(std::int64_t), "samples");
  for (std::int64_t i = 0; i < num_samples; ++i) {
    const auto reason = bytes.value<std::int32_t>();
    if (reason < 0 || reason > static_cast<std::int32_t>(FinishReason::stop_string)) {
      throw MalformedBytes(fmt::format("finish reason {}", reason));
    }
    request.samples.push_back({unpack_tokens(bytes), static_cast<FinishReason>(reason)});
  }
  request.prompt_scores = unpack_tokens(bytes);
  return request;
}

std::vector<std::byte> pack_state(const RunState& state) {
  ByteWriter bytes;
  bytes.value(state.part);
  bytes.value(static_cast<std::int64_t>(state.keys.size()));
  for (const RunKey& key : state.keys) {
    bytes.text(key.name);
    bytes.text(key.value);
  }
  bytes.value(static_cast<std::int64_t>(state.requests.size()));
  for (const EarlierRequest& request : state.requests) {
    pack_request(request, bytes);
  }
  return bytes.take();
}

RunState unpack_state(std::span<const std::byte> packed) {
  ByteReader bytes(packed);
  RunState state;
  state.part = bytes.value<std::int64_t>();
  if (state.part < 1) {
    throw MalformedBytes(fmt::format("part {}", state.part));
  }
  const std::int64_t num_keys = bytes.count(2 * sizeof(std::int64_t), "keys");
  for (std::int64_t i = 0; i < num_keys; ++i) {
    std::string name = bytes.text("characters");
    state.keys.push_back({std::move(name), bytes.text("characters")});
  }
  const std::int64_t num_requests = bytes.count(4 * sizeof(std::int64_t), "requests");
  for (std::int64_t i = 0; i < num_requests; ++i) {
    state.requests.push_back(unpack_request(bytes));
  }
  if (!bytes.at_end()) {
    throw MalformedBytes(fmt::format("{} bytes behind the state", bytes.num_left()));
  }
  return state;
}

}  // namespace

void write_run_state(const std::string& path, const RunState& state) {
  const std::vector<std::byte> packed = pack_state(state);
  const Digest digest = digest_of(packed);
  std::string content(format_line);
  content.append(reinterpret_cast<const char*>(&digest), sizeof digest);
  content.append(reinterpret_cast<const char*>(packed.data()), packed.size());
  write_file_atomically(path, content);
}

RunState read_run_state(const std::string& path) {
  constexpr std::size_t most_bytes = std::size_t{1} << 36;
  constexpr std::size_t head_bytes = format_line.size() + sizeof(Digest);
  const std::string content = read_file(path, ExitCode::input, most_bytes);
  const auto fail = [&](const std::string& reason) {
    return Error(ExitCode::input, fmt::format("cannot go on from {}: {}; --overwrite begins anew", path, reason));
  };
  if (!content.starts_with(format_line.substr(0, format_line.find(' ')))) {
    throw fail("it is no state of a run");
  }
  if (!content.starts_with(format_line) || content.size() < head_bytes) {
    throw fail("it was written by another version of the program or is damaged");
  }
  Digest digest = 0;
  std::memcpy(&digest, content.data() + format_line.size(), sizeof digest);
  const auto packed = std::as_bytes(std::span(content)).subspan(head_bytes);
  if (digest_of(packed) != digest) {
    throw fail(
        fmt::format("it is damaged: its content has the digest {}, not {}", to_hex(digest_of(packed)), to_hex(digest)));
  }
  try {
    return unpack_state(packed);
  } catch (const MalformedBytes& error) {
    throw fail(fmt::format("it is damaged: {}", error.what()));
  }
}

}  // namespace metro
