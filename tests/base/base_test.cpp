#include "base/digest.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "base/stored_type.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <filesystem>

using metro::ExitCode;
using metro::test::expect_error;
using metro::test::ScratchFolder;

TEST_CASE("a digest is XXH3 with 64 bits and can be taken in pieces") {
  // From the specification of xxHash: XXH3_64bits of the empty input with seed 0.
  CHECK(metro::to_hex(metro::digest_of("")) == "2d06800538d394c2");

  const std::string text = "activated experts";
  metro::DigestStream stream;
  stream.update(std::as_bytes(std::span(text).first(5)));
  stream.update(std::as_bytes(std::span(text).subspan(5)));

  CHECK(stream.digest() == metro::digest_of(text));
}

TEST_CASE("bf16 widens to the float with the same upper half") {
  CHECK(metro::widen_bf16(0x3f80) == 1.0F);
  CHECK(metro::widen_bf16(0xc040) == -3.0F);
}

TEST_CASE("an atomic write leaves the new content and no other file") {
  const ScratchFolder folder;

  metro::write_file_atomically(folder.file("a"), "first");
  metro::write_file_atomically(folder.file("a"), "second");

  CHECK(metro::read_file(folder.file("a"), ExitCode::usage) == "second");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("a file that cannot be read or created is named with the reason") {
  const ScratchFolder folder;

  expect_error(ExitCode::input, {"/none", "No such file"},
               [&] { metro::read_file(folder.file("none"), ExitCode::input); });
  expect_error(ExitCode::input, {"folder"}, [&] { metro::read_file(folder.path().string(), ExitCode::input); });
  expect_error(ExitCode::usage, {"no/a"}, [&] { metro::write_file_atomically(folder.file("no/a"), "x"); });
  expect_error(ExitCode::usage, {"no/a", "No such file"},
               [&] { metro::require_room_for_output(folder.file("no/a"), true); });
  CHECK_NOTHROW(metro::require_room_for_output(folder.file("a"), false));
}

TEST_CASE("JSON with a repeated key, trailing text, bad UTF-8 or deep nesting is refused") {
  const auto parse = [](const std::string& text) { return metro::parse_json(text, "f.json", ExitCode::input); };

  CHECK(parse(R"({"a": {"b": 1}, "b": 2})").at("b") == 2);
  expect_error(ExitCode::input, {"f.json", "\"b\"", "twice"}, [&] { parse(R"({"a": {"b": 1, "b": 2}})"); });
  expect_error(ExitCode::input, {"f.json", "line 1"}, [&] { parse("{} x"); });
  expect_error(ExitCode::input, {"f.json", "NUL byte, number 3"}, [&] { parse(std::string("{}\0", 3)); });
  expect_error(ExitCode::input, {"UTF-8"}, [&] { parse("\"\xff\""); });
  expect_error(ExitCode::input, {"deeper"}, [&] { parse(std::string(100000, '[')); });
}

TEST_CASE("a file beyond the stated size is refused before it fills the memory") {
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("a"), "12345");

  CHECK(metro::read_file(folder.file("a"), ExitCode::usage, 5) == "12345");
  expect_error(ExitCode::usage, {"more than 4 bytes"}, [&] { metro::read_file(folder.file("a"), ExitCode::usage, 4); });
}

TEST_CASE("a message stays on one line") {
  CHECK(metro::one_line("cannot open a\nb\r") == "cannot open a?b?");
}
