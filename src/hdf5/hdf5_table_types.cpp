#include "hdf5/hdf5_table_types.hpp"

#include <hdf5.h>

namespace metro {

namespace {

Hdf5Handle copy_of(Hdf5Id type, ExitCode on_failure) {
  return Hdf5Handle(H5Tcopy(type), H5Tclose, on_failure, "HDF5 type");
}

Hdf5Handle text_type(ExitCode on_failure) {
  Hdf5Handle text = copy_of(H5T_C_S1, on_failure);
  checked_hdf5(H5Tset_size(text.id(), H5T_VARIABLE), on_failure, "HDF5 type");
  checked_hdf5(H5Tset_cset(text.id(), H5T_CSET_UTF8), on_failure, "HDF5 type");
  return text;
}

}  // namespace

Hdf5Handle stored_type_of(ColumnType type, ExitCode on_failure) {
  switch (type) {
    case ColumnType::u8:
      return copy_of(H5T_STD_U8LE, on_failure);
    case ColumnType::u16:
      return copy_of(H5T_STD_U16LE, on_failure);
    case ColumnType::u32:
      return copy_of(H5T_STD_U32LE, on_failure);
    case ColumnType::i32:
      return copy_of(H5T_STD_I32LE, on_failure);
    case ColumnType::i64:
      return copy_of(H5T_STD_I64LE, on_failure);
    case ColumnType::f32:
      return copy_of(H5T_IEEE_F32LE, on_failure);
    case ColumnType::f64:
      return copy_of(H5T_IEEE_F64LE, on_failure);
    case ColumnType::text:
      return text_type(on_failure);
  }
  throw Bug("unknown type of a column");
}

Hdf5Handle memory_type_of(ColumnType type, ExitCode on_failure) {
  switch (type) {
    case ColumnType::u8:
      return copy_of(H5T_NATIVE_UINT8, on_failure);
    case ColumnType::u16:
      return copy_of(H5T_NATIVE_UINT16, on_failure);
    case ColumnType::u32:
      return copy_of(H5T_NATIVE_UINT32, on_failure);
    case ColumnType::i32:
      return copy_of(H5T_NATIVE_INT32, on_failure);
    case ColumnType::i64:
      return copy_of(H5T_NATIVE_INT64, on_failure);
    case ColumnType::f32:
      return copy_of(H5T_NATIVE_FLOAT, on_failure);
    case ColumnType::f64:
      return copy_of(H5T_NATIVE_DOUBLE, on_failure);
    case ColumnType::text:
      return text_type(on_failure);
  }
  throw Bug("unknown type of a column");
}

Hdf5Handle table_file_access(ExitCode on_failure) {
  Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, on_failure, "HDF5 property list");
  checked_hdf5(H5Pset_libver_bounds(access.id(), H5F_LIBVER_V18, H5F_LIBVER_V18), on_failure, "HDF5 format");
#if H5_VERSION_GE(1, 10, 7)
  checked_hdf5(H5Pset_file_locking(access.id(), false, true), on_failure, "HDF5 file locking");
#endif
  return access;
}

}  // namespace metro
