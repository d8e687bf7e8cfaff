// HDF5 files for fuzzing: a valid file with some bytes changed. Checksums of the headers are made to fit again if the
// first byte of the input says so, since a stranger would do that: without it every change ends at a checksum.
#pragma once

#include <hdf5.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

// Not in hdf5.h, but in the library: the checksum of its metadata.
extern "C" std::uint32_t H5_checksum_metadata(const void* data, std::size_t size, std::uint32_t first);

namespace metro::fuzz {

inline void put_checksum(std::string& file, std::size_t begin, std::size_t end) {
  if (end + 4 <= file.size() && begin < end) {
    const std::uint32_t checksum = H5_checksum_metadata(file.data() + begin, end - begin, 0);
    std::memcpy(file.data() + end, &checksum, sizeof(checksum));
  }
}

// Superblock of version 2 with addresses of 8 bytes, and the first chunk of each object header of version 2.
inline void repair_checksums(std::string& file) {
  put_checksum(file, 0, 44);
  for (std::size_t at = file.find("OHDR"); at != std::string::npos; at = file.find("OHDR", at + 1)) {
    if (at + 32 > file.size()) {
      return;
    }
    const auto flags = static_cast<unsigned char>(file[at + 5]);
    std::size_t next = at + 6 + ((flags & 0x20U) != 0 ? 16 : 0) + ((flags & 0x10U) != 0 ? 4 : 0);
    const std::size_t length_bytes = std::size_t{1} << (flags & 3U);
    std::uint64_t chunk_bytes = 0;
    std::memcpy(&chunk_bytes, file.data() + std::min(next, file.size() - 8), length_bytes);
    next += length_bytes;
    if (chunk_bytes < file.size()) {
      put_checksum(file, at, next + static_cast<std::size_t>(chunk_bytes));
    }
  }
}

// `input`: a byte (odd: repair), then changes of 4 bytes each: the place as a 24-bit number, the new value. A place
// beyond the file cuts it off at (place mod size).
inline std::string patched(std::string file, std::string_view input) {
  const std::size_t num_bytes = file.size();
  const bool repair = !input.empty() && (static_cast<unsigned char>(input.front()) & 1U) != 0;
  for (std::size_t at = 1; at + 4 <= input.size(); at += 4) {
    std::uint32_t change = 0;
    std::memcpy(&change, input.data() + at, sizeof(change));
    const std::size_t place = change & 0xffffffU;
    if (place < num_bytes) {
      file[std::min(place, file.size() - 1)] = static_cast<char>(change >> 24);
    } else {
      file.resize(std::max<std::size_t>(1, std::min(file.size(), place % num_bytes)));
    }
  }
  if (repair) {
    repair_checksums(file);
  }
  return file;
}

}  // namespace metro::fuzz
