#include "transport/agree.hpp"

#include "base/digest.hpp"
#include "base/error.hpp"
#include "transport/host_name.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <sstream>
#include <vector>

namespace metro {

bool any_rank(Transport& transport, bool value) {
  std::int64_t any = value ? 1 : 0;
  transport.all_reduce_max({&any, 1});
  return any != 0;
}

std::vector<std::int64_t> gather_integers(Transport& transport, std::int64_t value) {
  const auto size = static_cast<std::size_t>(transport.size());
  std::vector<std::int64_t> values(size);
  const std::vector<std::int64_t> bytes(size, sizeof value);
  transport.all_gather(std::as_bytes(std::span(&value, 1)), std::as_writable_bytes(std::span(values)), bytes);
  return values;
}

std::vector<std::string> gather_texts(Transport& transport, const std::string& text) {
  const std::vector<std::int64_t> lengths = gather_integers(transport, std::ssize(text));
  std::int64_t total = 0;
  for (const std::int64_t length : lengths) {
    total += length;
  }
  std::string joined(static_cast<std::size_t>(total), '\0');
  transport.all_gather(std::as_bytes(std::span(text)), std::as_writable_bytes(std::span(joined)), lengths);

  std::vector<std::string> texts;
  std::size_t offset = 0;
  for (const std::int64_t length : lengths) {
    texts.push_back(joined.substr(offset, static_cast<std::size_t>(length)));
    offset += static_cast<std::size_t>(length);
  }
  return texts;
}

namespace {

// The text of rank `root` on all ranks.
std::string broadcast_text(Transport& transport, const std::string& text, std::int64_t root) {
  std::array<std::int64_t, 1> length{std::ssize(text)};
  transport.broadcast(std::as_writable_bytes(std::span(length)), root);
  std::string result = transport.rank() == root ? text : std::string();
  result.resize(static_cast<std::size_t>(length[0]));
  transport.broadcast(std::as_writable_bytes(std::span(result)), root);
  return result;
}

// The Error that `work` throws, if any; everything else passes through.
std::optional<Error> error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

constexpr std::int64_t no_error = -1;  // no exit code is negative

std::int64_t code_of(const std::optional<Error>& error) {
  return error ? static_cast<std::int64_t>(error->exit_code()) : no_error;
}

std::string message_of(const std::optional<Error>& error) {
  return error ? error->what() : std::string();
}

std::string numbers(const std::vector<std::int64_t>& values) {
  constexpr std::size_t num_shown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(values.size(), num_shown); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(values[i]);
  }
  return values.size() > num_shown ? text + " and " + std::to_string(values.size() - num_shown) + " more" : text;
}

// "line 3: "a = 1" on rank 0, "a = 2" on rank 5", for the first line in which two different texts differ.
std::string first_difference(const std::string& text_0, const std::string& text_r, std::int64_t rank) {
  constexpr std::size_t shown_bytes = 200;
  std::istringstream lines_0(text_0);
  std::istringstream lines_r(text_r);
  std::int64_t line_number = 0;
  std::string line_0;
  std::string line_r;
  bool more = true;
  while (more && line_0 == line_r) {
    line_0.clear();
    line_r.clear();
    const bool more_0 = !std::getline(lines_0, line_0).fail();
    const bool more_r = !std::getline(lines_r, line_r).fail();
    more = more_0 || more_r;
    ++line_number;
  }
  return "line " + std::to_string(line_number) + ": \"" + line_0.substr(0, shown_bytes) + "\" on rank 0, \"" +
         line_r.substr(0, shown_bytes) + "\" on rank " + std::to_string(rank);
}

}  // namespace

void agree(Transport& transport, const std::function<void()>& work) {
  const std::optional<Error> own = error_of(work);
  std::array<std::int64_t, 1> any_failed{own ? 1 : 0};
  transport.all_reduce_max(any_failed);
  if (any_failed[0] == 0) {
    return;
  }

  const std::vector<std::int64_t> codes = gather_integers(transport, code_of(own));
  const std::vector<std::string> messages = gather_texts(transport, message_of(own));
  const std::vector<std::string> hosts = gather_texts(transport, host_name());
  std::size_t rank = 0;
  bool alike = true;
  for (std::size_t r = codes.size(); r-- > 0;) {
    alike = alike && codes[r] == codes[0] && messages[r] == messages[0];
    rank = codes[r] == no_error ? rank : r;
  }
  const std::string where = alike ? "" : "rank " + std::to_string(rank) + " (" + hosts[rank] + "): ";
  throw AgreedError(static_cast<ExitCode>(codes[rank]), where + messages[rank]);
}

std::string from_rank_0(Transport& transport, const std::function<std::string()>& work) {
  std::string result;
  std::optional<Error> error;
  if (transport.rank() == 0) {
    error = error_of([&] { result = work(); });
  }
  std::array<std::int64_t, 1> code{code_of(error)};
  transport.broadcast(std::as_writable_bytes(std::span(code)), 0);
  const std::string text = broadcast_text(transport, error ? error->what() : result, 0);
  if (code[0] != no_error) {
    throw AgreedError(static_cast<ExitCode>(code[0]), text);
  }
  return text;
}

void require_same(Transport& transport, const std::string& what, const std::string& text) {
  const std::vector<std::int64_t> digests =
      gather_integers(transport, static_cast<std::int64_t>(digest_of(std::string_view(text))));
  std::vector<std::int64_t> different;
  for (std::int64_t r = 0; r < std::ssize(digests); ++r) {
    if (digests[static_cast<std::size_t>(r)] != digests[0]) {
      different.push_back(r);
    }
  }
  if (different.empty()) {
    return;
  }
  const std::string text_0 = broadcast_text(transport, text, 0);
  const std::string text_r = broadcast_text(transport, text, different[0]);
  throw AgreedError(ExitCode::internal, "the " + what + " is not the same on all ranks: rank" +
                                            (different.size() > 1 ? "s " : " ") + numbers(different) +
                                            (different.size() > 1 ? " differ" : " differs") + " from rank 0; " +
                                            first_difference(text_0, text_r, different[0]));
}

}  // namespace metro
