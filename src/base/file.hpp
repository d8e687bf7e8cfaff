// Whole small files: configuration, JSON, tokenizers. Large data has readers of its own.
#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace metro {

// The bytes of a file. Throws Error(on_failure) with path and reason, also when there are more than max_bytes.
std::string read_file(const std::string& path, ExitCode on_failure, std::size_t max_bytes = std::size_t{1} << 30);

// Makes an empty file and returns its descriptor, open for writing. A plain file or a link at `path` is removed first,
// never followed or reused: in a folder that others can write to, it may be theirs, to read what is written or to have
// it written elsewhere. The file has the permissions of the user's umask. Throws Error(usage).
int make_new_file(const std::string& path);

// Makes a folder. Throws Error(usage) if it is there already or cannot be made; `name` is what the message calls it.
void make_new_folder(const std::string& path, const std::string& name);

// Writes `content` beside `path` and renames, so that `path` is never half written. Throws Error(usage) if the file
// cannot be created, Error(machine) if writing fails (disk full).
void write_file_atomically(const std::string& path, std::string_view content);

// Throws Error(usage) unless `path` is free in a folder that can be written, or a plain file and `overwrite` is given.
// Called before the work whose result it is to hold, and for every file of an output.directory before the first of them
// is made, so that a refused start leaves no empty file behind.
void require_room_for_output(const std::string& path, bool overwrite);

}  // namespace metro
