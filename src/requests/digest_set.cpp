#include "requests/digest_set.hpp"

#include <utility>

namespace metro {

namespace {

// The slot that holds `digest`, or the free one where it belongs.
std::size_t slot_of(const std::vector<Digest>& slots, Digest digest) {
  std::size_t slot = digest % slots.size();
  while (slots[slot] != 0 && slots[slot] != digest) {
    slot = slot + 1 == slots.size() ? 0 : slot + 1;
  }
  return slot;
}

}  // namespace

void DigestSet::Table::grow() {
  // By two fifths, so that a table is always more than half full: less than two slots, 16 bytes, per digest.
  std::vector<Digest> larger(slots.size() * 7 / 5 + 17);
  for (const Digest digest : slots) {
    if (digest != 0) {
      larger[slot_of(larger, digest)] = digest;
    }
  }
  slots = std::move(larger);
}

bool DigestSet::Table::insert(Digest digest) {
  if (4 * (num_used + 1) > 3 * slots.size()) {
    grow();
  }
  Digest& slot = slots[slot_of(slots, digest)];
  if (slot == digest) {
    return false;
  }
  slot = digest;
  ++num_used;
  return true;
}

bool DigestSet::insert(Digest digest) {
  if (digest == 0) {
    return !std::exchange(has_zero_, true);
  }
  return tables_[digest >> 58U].insert(digest);
}

std::int64_t DigestSet::size() const {
  std::size_t size = has_zero_ ? 1 : 0;
  for (const Table& table : tables_) {
    size += table.num_used;
  }
  return static_cast<std::int64_t>(size);
}

std::int64_t DigestSet::memory_bytes() const {
  std::size_t num_slots = 0;
  for (const Table& table : tables_) {
    num_slots += table.slots.capacity();
  }
  return static_cast<std::int64_t>(num_slots * sizeof(Digest));
}

}  // namespace metro
