// Standard output, checked: a full disk behind `metro ... > file` is a failure, not silence.
#pragma once

#include <string_view>

namespace metro {

// Writes and flushes. Throws Error(machine) with the reason.
void print_to_stdout(std::string_view text);

// Flushes what others have written. Throws Error(machine) if that or an earlier write failed.
void flush_stdout();

}  // namespace metro
