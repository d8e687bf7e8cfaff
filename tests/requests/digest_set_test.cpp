#include "requests/digest_set.hpp"

#include <catch2/catch.hpp>

#include <set>

using metro::Digest;
using metro::DigestSet;

namespace {

// The i-th of a sequence of different numbers that look like digests (the mixing step of SplitMix64 is one to one).
Digest mixed(std::uint64_t i) {
  std::uint64_t z = i * 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

}  // namespace

TEST_CASE("a digest is new once") {
  DigestSet set;

  for (const Digest digest : {Digest{5}, Digest{0}, ~Digest{0}, Digest{1} << 63U}) {
    CHECK(set.insert(digest));
    CHECK(!set.insert(digest));
  }
  CHECK(set.size() == 4);
}

TEST_CASE("a set of digests agrees with an ordered set") {
  DigestSet set;
  std::set<Digest> expected;

  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const Digest digest = mixed(i * i % 7'919);
    CHECK(set.insert(digest) == expected.insert(digest).second);
  }
  CHECK(set.size() == static_cast<std::int64_t>(expected.size()));
}

TEST_CASE("digests that meet in a slot are kept apart") {
  DigestSet set;

  // The first table has 17 slots.
  for (Digest i = 1; i <= 1'000; ++i) {
    CHECK(set.insert(i * 17));
  }
  for (Digest i = 1; i <= 1'000; ++i) {
    CHECK(!set.insert(i * 17));
    CHECK(set.insert(i * 17 + 1));
  }
}

TEST_CASE("a digest takes at most 16 bytes") {
  DigestSet set;

  for (std::uint64_t i = 0; i < 300'000; ++i) {
    set.insert(mixed(i));
    if (i % 10'000 == 9'999 && i > 50'000) {
      CHECK(set.memory_bytes() <= 16 * set.size());
    }
  }
}
