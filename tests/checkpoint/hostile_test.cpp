// Checkpoints that were damaged on the way, or made by someone who means harm.
#include "checkpoint/checkpoint_reader.hpp"

#include "base/file.hpp"
#include "checkpoint/folders.hpp"
#include "checkpoint/hdf5_edits.hpp"
#include "support/expect_error.hpp"

#include <hdf5.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <random>

using metro::CheckpointReader;
using metro::Digest;
using metro::Error;
using metro::ExitCode;
using metro::test::convert_into;
using metro::test::edit;
using metro::test::expect_unreadable;
using metro::test::ScratchFolder;

namespace {

// The checkpoint read whole: its digest, with every tensor and source file compared with its own.
Digest read_whole(const std::string& path) {
  CheckpointReader reader(path);
  for (const auto& [name, tensor] : reader.tensors()) {
    metro::test::read_bytes(reader, name);
  }
  for (const std::string& name : reader.source_file_names()) {
    reader.source_file(name);
  }
  return reader.digest();
}

// Reading the file gives `expected` or an Error of a checkpoint; anything else fails the test.
bool is_refused(const std::string& path, Digest expected) {
  try {
    const Digest found = read_whole(path);
    CHECK(found == expected);
    return false;
  } catch (const Error& error) {
    CHECK(error.exit_code() == ExitCode::checkpoint);
    CHECK_THAT(std::string(error.what()), Catch::Matchers::Contains(path));
    return true;
  }
}

// Puts another object where /norm was.
template <class Make>
void replace_norm(const std::string& path, const Make& make) {
  edit(path, [&](hid_t file) {
    REQUIRE(H5Ldelete(file, "/norm", H5P_DEFAULT) >= 0);
    make(file);
  });
}

void make_norm(hid_t file, hid_t creation) {
  const hsize_t extent = 72;
  const hid_t space = H5Screate_simple(1, &extent, nullptr);
  const hid_t dataset = H5Dcreate2(file, "/norm", H5T_IEEE_F32LE, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  REQUIRE(dataset >= 0);
  REQUIRE(H5Dclose(dataset) >= 0);
  REQUIRE(H5Sclose(space) >= 0);
  REQUIRE(H5Pclose(creation) >= 0);
}

}  // namespace

TEST_CASE("one flipped bit anywhere in a checkpoint is an error or changes nothing") {
  const ScratchFolder scratch;
  const std::string original = metro::read_file(convert_into(scratch, metro::test::sharded), ExitCode::checkpoint);
  const std::string path = scratch.file("flipped.h5");
  metro::write_file_atomically(path, original);
  const Digest expected = read_whole(path);
  // Half of the places in the first pages and near headers of objects, where HDF5 finds its way.
  std::vector<std::size_t> places;
  for (std::size_t at = original.find("OHDR"); at != std::string::npos; at = original.find("OHDR", at + 1)) {
    places.push_back(at);
  }
  REQUIRE(places.size() > 20);
  std::mt19937_64 random(20260731);
  int num_refused = 0;

  for (int flip = 0; flip < 200; ++flip) {
    const std::size_t place =
        flip % 2 == 0 ? random() % original.size() : places[random() % places.size()] + random() % 256;
    std::string changed = original;
    changed[place] = static_cast<char>(changed[place] ^ (1 << random() % 8));
    metro::write_file_atomically(path, changed);
    CAPTURE(place);
    num_refused += is_refused(path, expected) ? 1 : 0;
  }

  CHECK(num_refused > 50);  // the others hit the gaps between pages
}

TEST_CASE("a checkpoint that was cut off anywhere is refused") {
  const ScratchFolder scratch;
  const std::string original = metro::read_file(convert_into(scratch, metro::test::sharded), ExitCode::checkpoint);
  const std::string path = scratch.file("cut.h5");

  for (std::size_t part = 0; part < 40; ++part) {
    metro::write_file_atomically(path, original.substr(0, original.size() * part / 40));
    CAPTURE(part);
    CHECK(is_refused(path, 0));
  }
}

TEST_CASE("a dataset that is a link to another file is refused, whatever is there") {
  const ScratchFolder scratch;
  const std::string path = convert_into(scratch, metro::test::sharded);
  std::filesystem::copy(path, scratch.file("other.h5"));
  replace_norm(path, [&](hid_t file) {
    REQUIRE(H5Lcreate_external("other.h5", "/norm", file, "/norm", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  });

  expect_unreadable(path, {path.c_str(), "dataset /norm is a link to another file, which is not followed"});
}

TEST_CASE("a group that is a link to another file is refused") {
  const ScratchFolder scratch;
  const std::string path = convert_into(scratch, metro::test::sharded);
  std::filesystem::copy(path, scratch.file("other.h5"));
  edit(path, [](hid_t file) {
    REQUIRE(H5Ldelete(file, "/source", H5P_DEFAULT) >= 0);
    REQUIRE(H5Lcreate_external("other.h5", "/source", file, "/source", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  });

  expect_unreadable(path, {"group /source is a link to another file, which is not followed"});
}

TEST_CASE("a dataset that takes its data from other files is refused") {
  const ScratchFolder scratch;
  const std::string path = convert_into(scratch, metro::test::sharded);

  SECTION("external storage") {
    replace_norm(path, [](hid_t file) {
      const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
      REQUIRE(H5Pset_external(creation, "/etc/hostname", 0, 288) >= 0);
      make_norm(file, creation);
    });
  }
  SECTION("a virtual dataset") {
    replace_norm(path, [](hid_t file) {
      const hsize_t extent = 72;
      const hid_t space = H5Screate_simple(1, &extent, nullptr);
      const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
      REQUIRE(H5Pset_virtual(creation, space, "other.h5", "/norm", space) >= 0);
      REQUIRE(H5Sclose(space) >= 0);
      make_norm(file, creation);
    });
  }

  expect_unreadable(path, {"dataset /norm takes its data from other files, which is not allowed"});
}

TEST_CASE("links that lead in a circle are refused") {
  const ScratchFolder scratch;
  const std::string path = convert_into(scratch, metro::test::sharded);
  replace_norm(path, [](hid_t file) {
    REQUIRE(H5Lcreate_soft("/norm2", file, "/norm", H5P_DEFAULT, H5P_DEFAULT) >= 0);
    REQUIRE(H5Lcreate_soft("/norm", file, "/norm2", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  });

  expect_unreadable(path, {"dataset /norm is missing or unreadable"});
}
