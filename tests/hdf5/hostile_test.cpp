// Table files that claim more than they have, or that point out of themselves.
#include "hdf5/hdf5_table_reader.hpp"
#include "hdf5/hdf5_table_writer.hpp"
#include "support/expect_error.hpp"
#include "support/scratch_folder.hpp"

#include <hdf5.h>
#include <sys/stat.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <fstream>
#include <vector>

using metro::ExitCode;
using metro::Hdf5TableReader;
using metro::Hdf5TableWriter;
using metro::test::expect_error;
using metro::test::ScratchFolder;

namespace {

// A file whose dataset /numbers has this shape, made with these properties, and holds nothing.
void make_file(const std::string& path, const std::vector<hsize_t>& extents, hid_t creation) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr);
  const hid_t dataset = H5Dcreate2(file, "/numbers", H5T_STD_I32LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  REQUIRE(dataset >= 0);
  REQUIRE(H5Dclose(dataset) >= 0);
  REQUIRE(H5Sclose(space) >= 0);
  REQUIRE(H5Pclose(creation) >= 0);
  REQUIRE(H5Fclose(file) >= 0);
}

hid_t chunked(const std::vector<hsize_t>& chunk) {
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  REQUIRE(H5Pset_chunk(creation, static_cast<int>(chunk.size()), chunk.data()) >= 0);
  return creation;
}

void expect_refusal(const std::string& path, std::initializer_list<const char*> texts) {
  expect_error(ExitCode::input, {path.c_str()}, [&] { Hdf5TableReader(path, ExitCode::input).integers("/numbers"); });
  expect_error(ExitCode::input, texts, [&] { Hdf5TableReader(path, ExitCode::input).integers("/numbers"); });
  expect_error(ExitCode::input, texts,
               [&] { Hdf5TableReader(path, ExitCode::input).rows<std::int32_t>("/numbers", 0, 4, 0); });
}

}  // namespace

TEST_CASE("a dataset that claims terabytes is refused before memory is taken") {
  const ScratchFolder scratch;
  const std::string path = scratch.file("huge.h5");
  make_file(path, {hsize_t{1} << 42}, chunked({1024}));

  expect_refusal(path, {"dataset /numbers claims more than its 0 stored bytes can hold"});
}

TEST_CASE("chunks beyond the limit are refused") {
  const ScratchFolder scratch;
  const std::string path = scratch.file("chunks.h5");
  make_file(path, {hsize_t{1} << 30}, chunked({hsize_t{1} << 29}));

  expect_refusal(path, {"dataset /numbers has chunks of more than 268435456 bytes"});
}

TEST_CASE("data packed by another filter are refused by its number") {
  const ScratchFolder scratch;
  const std::string path = scratch.file("filter.h5");
  const hid_t creation = chunked({4});
  REQUIRE(H5Pset_nbit(creation) >= 0);
  make_file(path, {4}, creation);

  expect_refusal(path, {"dataset /numbers is packed with filter 5"});
}

TEST_CASE("data in another file are refused") {
  const ScratchFolder scratch;
  const std::string path = scratch.file("external.h5");
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  REQUIRE(H5Pset_external(creation, "/etc/hostname", 0, 16) >= 0);
  make_file(path, {4}, creation);

  expect_refusal(path, {"dataset /numbers takes its data from other files"});
}

TEST_CASE("a link to another file is refused") {
  const ScratchFolder scratch;
  const std::string path = scratch.file("link.h5");
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  REQUIRE(H5Lcreate_external("other.h5", "/numbers", file, "/numbers", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  REQUIRE(H5Fclose(file) >= 0);

  expect_refusal(path, {"dataset /numbers is a link to another file"});
}

TEST_CASE("a table file takes the place of a link and does not write where it led") {
  const ScratchFolder scratch;
  const std::string path = scratch.file("metrics.h5");
  std::ofstream(scratch.file("others")) << "theirs";
  REQUIRE(::symlink(scratch.file("others").c_str(), path.c_str()) == 0);

  Hdf5TableWriter(path, 4).close();

  struct stat status {};
  REQUIRE(::lstat(path.c_str(), &status) == 0);
  CHECK(S_ISREG(status.st_mode));
  std::string kept;
  std::ifstream(scratch.file("others")) >> kept;
  CHECK(kept == "theirs");
}
