#include "transport/host_name.hpp"

#include <unistd.h>

#include <array>

namespace metro {

std::string host_name() {
  std::array<char, 256> name{};
  // A longer name may come without its zero: the last byte is left alone.
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') {
    return "unknown-host";
  }
  return name.data();
}

}  // namespace metro
