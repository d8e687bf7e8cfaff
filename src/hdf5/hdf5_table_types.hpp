// What writing and reading of tables share: how a value lies in the file and in memory, how a file is opened.
#pragma once

#include "hdf5/hdf5_handle.hpp"
#include "hdf5/hdf5_table_writer.hpp"

namespace metro {

// In the file: little-endian numbers, UTF-8 texts of any length.
Hdf5Handle stored_type_of(ColumnType type, ExitCode on_failure);
// In memory: numbers of this machine, pointers to texts that end with a zero.
Hdf5Handle memory_type_of(ColumnType type, ExitCode on_failure);

// Without file locks: some parallel file systems have none, and a file may be looked at while it grows.
Hdf5Handle table_file_access(ExitCode on_failure);

}  // namespace metro
