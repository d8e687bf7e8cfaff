// Errors that all ranks must leave with together, and values that all ranks must share.
#pragma once

#include "transport/transport.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace metro {

// Collective. Runs `work` on every rank; if it throws Error on any, all ranks throw AgreedError with the message and
// exit code of the lowest such rank (prefixed "rank r (host): " when not all ranks failed alike). Anything but Error
// passes through on its own rank. `work` must not communicate.
void agree(Transport& transport, const std::function<void()>& work);

// Collective. Like agree, but `work` runs on rank 0 only, on behalf of all: its string result reaches all ranks, and so
// does the message of its Error, without a prefix. The result may hold any bytes.
std::string from_rank_0(Transport& transport, const std::function<std::string()>& work);

// Collective. Throws AgreedError(internal) naming the ranks that differ from rank 0, and the first line that does,
// unless `text` is the same on all ranks. `what` says what it is ("build", "deck", "checkpoint").
void require_same(Transport& transport, const std::string& what, const std::string& text);

// Collective. Whether `value` is true on any rank.
bool any_rank(Transport& transport, bool value);

// Collective. One integer of every rank. [size]
std::vector<std::int64_t> gather_integers(Transport& transport, std::int64_t value);

// Collective. One text of every rank, of any length. [size]
std::vector<std::string> gather_texts(Transport& transport, const std::string& text);

}  // namespace metro
