// The name by which messages call the machine this process runs on.
#pragma once

#include <string>

namespace metro {

// "unknown-host" if the system does not tell.
std::string host_name();

}  // namespace metro
