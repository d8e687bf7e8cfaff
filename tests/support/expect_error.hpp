// Checks that something throws metro::Error with this exit code and a message that contains all of the given texts.
#pragma once

#include "base/error.hpp"

#include <catch2/catch.hpp>

#include <initializer_list>
#include <string>

namespace metro::test {

template <class F>
void expect_error(ExitCode exit_code, std::initializer_list<const char*> texts, F&& work) {
  try {
    work();
  } catch (const Error& error) {
    CHECK(static_cast<int>(error.exit_code()) == static_cast<int>(exit_code));
    for (const char* text : texts) {
      CHECK_THAT(std::string(error.what()), Catch::Matchers::Contains(text));
    }
    return;
  }
  FAIL("no metro::Error was thrown");
}

}  // namespace metro::test
