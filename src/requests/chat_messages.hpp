// What a chat template gets to see, checked: the messages of a chat line and the tools that they may use.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace metro {

// Throw LineError, naming the message or tool and what is wrong with it.
void check_messages(const nlohmann::json& messages);
void check_tools(const nlohmann::json& tools);

}  // namespace metro
