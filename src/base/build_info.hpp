// Which build this is.
#pragma once

#include <string>

namespace metro {

std::string version();            // "0.1.0"
std::string build_description();  // "metro 0.1.0 (1a2b3c4, Release, g++ 12.2.0)": equal for equal builds
}  // namespace metro
