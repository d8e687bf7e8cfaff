// Checkpoints changed with HDF5 calls, and that they are refused then.
#pragma once

#include "checkpoint/checkpoint_reader.hpp"
#include "support/expect_error.hpp"

#include <hdf5.h>
#include <catch2/catch.hpp>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace metro::test {

// Changes a checkpoint with HDF5 calls on the open file.
template <class F>
void edit(const std::string& path, F&& change) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  REQUIRE(file >= 0);
  change(file);
  REQUIRE(H5Fclose(file) >= 0);
}

inline void set_integer(hid_t file, const char* name, std::int64_t value) {
  const hid_t attribute = H5Aopen(file, name, H5P_DEFAULT);
  REQUIRE(H5Awrite(attribute, H5T_NATIVE_INT64, &value) >= 0);
  REQUIRE(H5Aclose(attribute) >= 0);
}

// A dataset of the given type and shape in place of an old one, with one digest, chunked if asked.
inline void replace_dataset(hid_t file, const char* name, hid_t type, std::vector<hsize_t> shape, bool chunked) {
  REQUIRE(H5Ldelete(file, name, H5P_DEFAULT) >= 0);
  const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  if (chunked) {
    REQUIRE(H5Pset_chunk(creation, static_cast<int>(shape.size()), shape.data()) >= 0);
  }
  REQUIRE(H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY) >= 0);
  const hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  const hsize_t one = 1;
  const hid_t one_space = H5Screate_simple(1, &one, nullptr);
  const hid_t digest = H5Acreate2(dataset, "digest", H5T_STD_U64LE, one_space, H5P_DEFAULT, H5P_DEFAULT);
  REQUIRE(digest >= 0);
  REQUIRE(H5Aclose(digest) >= 0);
  REQUIRE(H5Sclose(one_space) >= 0);
  REQUIRE(H5Dclose(dataset) >= 0);
  REQUIRE(H5Pclose(creation) >= 0);
  REQUIRE(H5Sclose(space) >= 0);
}

inline void expect_unreadable(const std::string& path, std::initializer_list<const char*> texts) {
  expect_error(ExitCode::checkpoint, texts, [&] { CheckpointReader reader(path); });
}

}  // namespace metro::test
