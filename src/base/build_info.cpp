#include "base/build_info.hpp"

#include "metro_commit.hpp"

namespace metro {

std::string version() {
  return METRO_VERSION;
}

std::string build_description() {
  return std::string("metro ") + METRO_VERSION + " (" + METRO_GIT_COMMIT + ", " + METRO_BUILD_TYPE + ", " +
         METRO_COMPILER + ")";
}

}  // namespace metro
