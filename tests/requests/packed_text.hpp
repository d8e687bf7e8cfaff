// Text compressed by the libraries themselves, for tests of what unpacks it.
#pragma once

#include <string>
#include <string_view>

namespace metro::test {

std::string gzipped(std::string_view text);

// One frame with a checksum. window_log: 0 or the size of the window that reading it will take.
std::string zstd_packed(std::string_view text, int window_log = 0);

}  // namespace metro::test
