#include "deck/byte_size.hpp"

#include <catch2/catch.hpp>

TEST_CASE("a size is a whole number with or without a unit") {
  CHECK(metro::parse_byte_size("0") == 0);
  CHECK(metro::parse_byte_size("512 MiB") == 536870912);
  CHECK(metro::parse_byte_size("2GiB") == 2147483648);
  CHECK(metro::parse_byte_size("3 TiB") == 3298534883328);
  CHECK(metro::parse_byte_size("1 GB") == 1000000000);
  CHECK(metro::parse_byte_size("1 kB") == 1000);
  CHECK(metro::parse_byte_size("7 B") == 7);
}

TEST_CASE("what is no size, or over 63 bits, is none") {
  for (const char* text : {"", "MiB", "-1 MiB", "1.5 GiB", "512 Mib", "1 GiB ", " 1 GiB", "1 G", "0x10",
                           "9223372036854775808", "8388608 TiB"}) {
    CAPTURE(text);
    CHECK_FALSE(metro::parse_byte_size(text).has_value());
  }
}

TEST_CASE("a size is printed exactly, or rounded for people") {
  CHECK(metro::exact_byte_size(0) == "0 B");
  CHECK(metro::exact_byte_size(1000) == "1000 B");
  CHECK(metro::exact_byte_size(268435456) == "256 MiB");
  CHECK(metro::exact_byte_size(1025 * 1024) == "1025 KiB");
  CHECK(metro::rounded_byte_size(999) == "999 B");
  CHECK(metro::rounded_byte_size(1572864) == "1.50 MiB");
  CHECK(metro::rounded_byte_size(11169792) == "10.7 MiB");
  CHECK(metro::rounded_byte_size(268435456) == "256 MiB");
}
