// Opening objects of HDF5 files that others wrote. HDF5 follows links into other files, gathers data from other files
// and believes sizes; nothing this program writes needs any of it, so all of it is refused here.
#pragma once

#include "hdf5/hdf5_handle.hpp"

#include <string>

namespace metro {

// Largest chunk that is read: HDF5 holds a whole chunk in memory, and a file may claim chunks of 4 GiB.
inline constexpr std::int64_t most_chunk_bytes = std::int64_t{1} << 28;

// The dataset `name` of an open file. Throws Error(on_failure), beginning with `path`, if it is missing or unreadable,
// or a link to another file stands on the way, or its data lie in other files (external or virtual), or are packed by
// anything but deflate, shuffle and Fletcher's checksum, or its chunks are larger than most_chunk_bytes, or its shape
// claims more than the bytes that are stored can stand for.
Hdf5Handle open_hdf5_dataset(const Hdf5Handle& file, const std::string& name, const std::string& path,
                             ExitCode on_failure);

// The group `name`. Throws Error(on_failure) if it is missing or in another file.
Hdf5Handle open_hdf5_group(const Hdf5Handle& file, const std::string& name, const std::string& path,
                           ExitCode on_failure);

// Whether there is a link `name` (a path from the root, without following links to other files).
bool has_hdf5_link(const Hdf5Handle& file, const std::string& name, const std::string& path, ExitCode on_failure);

}  // namespace metro
