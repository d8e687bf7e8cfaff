#include "deck/nearest.hpp"

#include <catch2/catch.hpp>

TEST_CASE("the distance counts inserted, removed, replaced and swapped characters") {
  CHECK(metro::edit_distance("", "") == 0);
  CHECK(metro::edit_distance("", "kv") == 2);
  CHECK(metro::edit_distance("kitten", "sitting") == 3);
  CHECK(metro::edit_distance("chunk", "chnuk") == 1);
  CHECK(metro::edit_distance("prefil_chunk", "prefill_chunk") == 1);
}

TEST_CASE("the nearest name is found, and nothing when all are far") {
  const std::vector<std::string> names = {"batch.prefill_chunk", "batch.prefill_min", "kv.memory"};

  CHECK(metro::nearest("batch.prefil_min", names) == "batch.prefill_min");
  CHECK(metro::nearest("kv.memroy", names) == "kv.memory");
  CHECK_FALSE(metro::nearest("temperature", names).has_value());
  CHECK_FALSE(metro::nearest("kv", {}).has_value());
}
