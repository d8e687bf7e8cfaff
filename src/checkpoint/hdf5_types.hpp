// How a StoredType is written in an HDF5 file.
#pragma once

#include "base/stored_type.hpp"
#include "hdf5/hdf5_handle.hpp"

namespace metro {

// bf16 is described to HDF5 as the 16-bit float it is, so that other programs read right numbers; f32 is IEEE,
// int8 an integer. fp8 and mxfp4 are bytes that HDF5 cannot describe (it would take the largest numbers of e4m3 for
// infinities): opaque, with a tag that says what they are.
Hdf5Handle hdf5_type_of(StoredType type, ExitCode on_failure);

inline constexpr const char* digest_attribute = "digest";

}  // namespace metro
