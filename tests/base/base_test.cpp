#include "base/digest.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "base/stored_type.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

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

TEST_CASE("a new file takes the place of a file or link and has the permissions of the umask") {
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("others"), "theirs");
  std::filesystem::permissions(folder.file("others"), std::filesystem::perms::all);
  std::filesystem::create_symlink(folder.file("others"), folder.file("link"));
  std::filesystem::create_hard_link(folder.file("others"), folder.file("shared"));
  const mode_t before = ::umask(0027);

  for (const char* name : {"link", "shared", "free"}) {
    const int descriptor = metro::make_new_file(folder.file(name));
    REQUIRE(::write(descriptor, "ours", 4) == 4);
    REQUIRE(::close(descriptor) == 0);
  }
  ::umask(before);

  CHECK(metro::read_file(folder.file("others"), ExitCode::usage) == "theirs");
  for (const char* name : {"link", "shared", "free"}) {
    CHECK(std::filesystem::symlink_status(folder.file(name)).type() == std::filesystem::file_type::regular);
    CHECK(std::filesystem::status(folder.file(name)).permissions() == std::filesystem::perms(0640));
    CHECK(metro::read_file(folder.file(name), ExitCode::usage) == "ours");
  }
  expect_error(ExitCode::usage, {"cannot create", "no/a"}, [&] { metro::make_new_file(folder.file("no/a")); });
  expect_error(ExitCode::usage, {"cannot create"}, [&] { metro::make_new_file(folder.path().string()); });
}

TEST_CASE("what an atomic write puts beside its file is not led astray by a link with that name") {
  const ScratchFolder folder;
  metro::write_file_atomically(folder.file("others"), "theirs");
  const std::string partial = folder.file("a") + ".partial-" + std::to_string(::getpid());
  std::filesystem::create_symlink(folder.file("others"), partial);

  metro::write_file_atomically(folder.file("a"), "ours");

  CHECK(metro::read_file(folder.file("others"), ExitCode::usage) == "theirs");
  CHECK(metro::read_file(folder.file("a"), ExitCode::usage) == "ours");
}

TEST_CASE("what is wrong with JSON is said without repeating it") {
  const std::string secret = "{\"prompt\": \"the secret plan\" \"" + std::string(10'000, 'x');

  try {
    metro::parse_json(secret, "f.json", ExitCode::input);
    FAIL("no error");
  } catch (const metro::Error& error) {
    CHECK(std::string(error.what()).size() < 300);
    CHECK_THAT(error.what(), !Catch::Matchers::Contains("secret") && !Catch::Matchers::Contains("xxx"));
  }
}

TEST_CASE("a message is cut where what it quotes makes it too long") {
  const metro::Error error(ExitCode::input, "f: " + std::string(1'000'000, 'x'));

  CHECK(std::string(error.what()).size() == metro::Error::longest_message + 3);
  CHECK_THAT(error.what(), Catch::Matchers::StartsWith("f: xxx") && Catch::Matchers::EndsWith("xxx..."));
}

TEST_CASE("a message stays on one line") {
  CHECK(metro::one_line("cannot open a\nb\r") == "cannot open a?b?");
}
