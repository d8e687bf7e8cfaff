#include "checkpoint/hdf5_types.hpp"

#include <hdf5.h>

namespace metro {

namespace {

Hdf5Handle tagged_byte(const char* tag, ExitCode on_failure) {
  Hdf5Handle handle(H5Tcreate(H5T_OPAQUE, 1), H5Tclose, on_failure, "HDF5 type");
  checked_hdf5(H5Tset_tag(handle.id(), tag), on_failure, "HDF5 type");
  return handle;
}

}  // namespace

Hdf5Handle hdf5_type_of(StoredType type, ExitCode on_failure) {
  if (type == StoredType::int8) {
    return Hdf5Handle(H5Tcopy(H5T_STD_I8LE), H5Tclose, on_failure, "HDF5 type");
  }
  if (type == StoredType::fp8) {
    return tagged_byte("e4m3", on_failure);
  }
  if (type == StoredType::mxfp4) {
    return tagged_byte("2 x e2m1", on_failure);
  }
  Hdf5Handle handle(H5Tcopy(H5T_IEEE_F32LE), H5Tclose, on_failure, "HDF5 type");
  if (type == StoredType::bf16) {
    // Sign bit 15, exponent bits 14..7, mantissa bits 6..0. The fields must shrink before the size does.
    checked_hdf5(H5Tset_fields(handle.id(), 15, 7, 8, 0, 7), on_failure, "HDF5 type bf16");
    checked_hdf5(H5Tset_size(handle.id(), 2), on_failure, "HDF5 type bf16");
    checked_hdf5(H5Tset_precision(handle.id(), 16), on_failure, "HDF5 type bf16");
    checked_hdf5(H5Tset_ebias(handle.id(), 127), on_failure, "HDF5 type bf16");
  }
  return handle;
}

}  // namespace metro
