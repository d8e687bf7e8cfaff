#include "hdf5/hdf5_table_reader.hpp"
#include "hdf5/hdf5_table_writer.hpp"
#include "support/expect_error.hpp"
#include "support/file_size_limit.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <fstream>
#include <numeric>

using metro::ColumnType;
using metro::ExitCode;
using metro::Hdf5Column;
using metro::Hdf5TableReader;
using metro::Hdf5TableWriter;
using metro::test::expect_error;
using metro::test::ScratchFolder;

namespace {

constexpr ExitCode on_failure = ExitCode::input;

// A file with a column of each kind that the errors need.
std::string small_file(const ScratchFolder& scratch) {
  const std::string path = scratch.file("small.h5");
  Hdf5TableWriter file(path, 4);
  file.attribute("name", std::string("small"));
  Hdf5Column<std::int32_t> numbers(file, "/numbers");
  Hdf5Column<std::int32_t> pairs(file, "/pairs", 2);
  for (const std::int32_t value : {1, 2, 3, 4}) {
    numbers.push(value);
    pairs.push(value);
  }
  numbers.flush();
  pairs.flush();
  file.close();
  return path;
}

}  // namespace

TEST_CASE("attributes and whole datasets come back as they were written") {
  const ScratchFolder scratch;
  const std::string path = scratch.file("a.h5");
  const std::vector<std::string> hosts{"node1", "", "knoten-\xc3\xa4"};
  {
    Hdf5TableWriter file(path, 4);
    file.attribute("empty", std::string());
    file.attribute("text", std::string("UTF-8: \xc3\xa4"));
    file.attribute("integer", std::int64_t{1} << 40);
    file.attribute("number", 0.1);
    file.text("/deck", std::string(100'000, 'd'));  // an attribute could not hold that much
    file.texts("/hosts", hosts);
    file.integers("/slots", {2, 1, 3}, std::vector<std::int32_t>{1, 2, 3, 4, 5, -1});
    file.close();
  }

  const Hdf5TableReader file(path, on_failure);

  CHECK(file.text_attribute("empty").empty());
  CHECK(file.text_attribute("text") == "UTF-8: \xc3\xa4");
  CHECK(file.integer_attribute("integer") == std::int64_t{1} << 40);
  CHECK(file.number_attribute("number") == 0.1);
  CHECK(file.text("/deck") == std::string(100'000, 'd'));
  CHECK(file.rows<std::string>("/hosts", 0, 3, 0) == hosts);
  CHECK(file.shape("/slots") == std::vector<std::int64_t>{2, 1, 3});
  CHECK(file.integers("/slots") == std::vector<std::int32_t>{1, 2, 3, 4, 5, -1});
}

TEST_CASE("columns grow by any number of rows at a time and keep their order") {
  const std::int64_t flush_every = GENERATE(1, 3, 4, 5, 100);
  CAPTURE(flush_every);
  const ScratchFolder scratch;
  const std::string path = scratch.file("a.h5");
  constexpr std::int64_t num_rows = 23;
  {
    Hdf5TableWriter file(path, 4);
    file.make_group("/group");
    Hdf5Column<double> times(file, "/group/times");
    Hdf5Column<float> pairs(file, "/group/pairs", 2);
    Hdf5Column<std::string> names(file, "/group/names");
    for (std::int64_t row = 0; row < num_rows; ++row) {
      times.push(0.5 * static_cast<double>(row));
      pairs.push(static_cast<float>(2 * row));
      pairs.push(static_cast<float>(2 * row + 1));
      names.push("row " + std::to_string(row));
      if ((row + 1) % flush_every == 0 || row + 1 == num_rows) {
        times.flush();
        pairs.flush();
        names.flush();
      }
    }
    file.close();
  }

  const Hdf5TableReader file(path, on_failure);

  CHECK(file.num_rows("/group/times") == num_rows);
  CHECK(file.rows<double>("/group/times", 20, 3, 0) == std::vector<double>{10.0, 10.5, 11.0});
  std::vector<float> counted(2 * num_rows);
  std::iota(counted.begin(), counted.end(), 0.0F);
  CHECK(file.rows<float>("/group/pairs", 0, num_rows, 2) == counted);
  CHECK(file.rows<std::string>("/group/names", 9, 2, 0) == std::vector<std::string>{"row 9", "row 10"});
  CHECK(file.rows<double>("/group/times", num_rows, 0, 0).empty());
}

TEST_CASE("rows may have any shape, and are read with as many values as that shape holds") {
  const ScratchFolder scratch;
  const std::string path = scratch.file("a.h5");
  std::vector<std::uint16_t> counted(5 * 2 * 3);
  std::iota(counted.begin(), counted.end(), std::uint16_t{65'500});
  const std::vector<std::uint32_t> large{4'000'000'000U, 7U};
  {
    Hdf5TableWriter file(path, 4);
    const std::size_t cubes = file.make_column("/cubes", ColumnType::u16, std::vector<std::int64_t>{2, 3});
    const std::size_t plain = file.make_column("/plain", ColumnType::u32, std::vector<std::int64_t>{});
    file.append(cubes, std::span<const std::uint16_t>(counted).first(6));
    file.append(cubes, std::span<const std::uint16_t>(counted).subspan(6));
    file.append(plain, std::span<const std::uint32_t>(large));
    file.close();
  }

  const Hdf5TableReader file(path, on_failure);

  CHECK(file.shape("/cubes") == std::vector<std::int64_t>{5, 2, 3});
  CHECK(file.rows<std::uint16_t>("/cubes", 0, 5, 6) == counted);
  CHECK(file.rows<std::uint16_t>("/cubes", 3, 1, 6) ==
        std::vector<std::uint16_t>(counted.begin() + 18, counted.begin() + 24));
  CHECK(file.rows<std::uint32_t>("/plain", 0, 2, 0) == large);
  expect_error(on_failure, {"/cubes", "[5, 2, 3]", "width 5"}, [&] { file.rows<std::uint16_t>("/cubes", 0, 1, 5); });
  expect_error(on_failure, {"/cubes", "[5, 2, 3]"}, [&] { file.rows<std::uint16_t>("/cubes", 0, 1, 0); });
}

TEST_CASE("what was flushed can be read while the file is still being written") {
  const ScratchFolder scratch;
  const std::string path = scratch.file("a.h5");
  Hdf5TableWriter file(path, 4);
  Hdf5Column<std::int64_t> numbers(file, "/numbers");
  numbers.push(7);
  numbers.flush();
  file.flush();
  std::ifstream now(path, std::ios::binary);
  std::ofstream(scratch.file("copy.h5"), std::ios::binary) << now.rdbuf();

  const Hdf5TableReader copy(scratch.file("copy.h5"), on_failure);

  CHECK(copy.rows<std::int64_t>("/numbers", 0, 1, 0) == std::vector<std::int64_t>{7});
}

TEST_CASE("an object that is missing or different is named with its file") {
  const ScratchFolder scratch;
  const Hdf5TableReader file(small_file(scratch), on_failure);

  expect_error(on_failure, {"small.h5", "attribute nothing", "is missing"}, [&] { file.text_attribute("nothing"); });
  expect_error(on_failure, {"small.h5", "attribute name", "must hold one integer"},
               [&] { file.integer_attribute("name"); });
  expect_error(on_failure, {"small.h5", "dataset /nothing is missing"}, [&] { file.num_rows("/nothing"); });
  expect_error(on_failure, {"small.h5", "dataset /numbers", "does not have the type"},
               [&] { file.rows<double>("/numbers", 0, 1, 0); });
  expect_error(on_failure, {"small.h5", "dataset /numbers", "[4]", "rows 2 to 5"},
               [&] { file.rows<std::int32_t>("/numbers", 2, 3, 0); });
  expect_error(on_failure, {"small.h5", "dataset /pairs", "[2, 2]", "width 3"},
               [&] { file.rows<std::int32_t>("/pairs", 0, 1, 3); });
  expect_error(on_failure, {"small.h5", "dataset /numbers", "does not have the type"}, [&] { file.text("/numbers"); });
}

TEST_CASE("files are told apart by a text attribute") {
  const ScratchFolder scratch;
  const std::string path = small_file(scratch);
  std::ofstream(scratch.file("text")) << "no HDF5";

  CHECK(metro::hdf5_text_attribute_or_empty(path, "name", on_failure) == "small");
  CHECK(metro::hdf5_text_attribute_or_empty(path, "format", on_failure).empty());
  CHECK(metro::hdf5_text_attribute_or_empty(scratch.file("text"), "name", on_failure).empty());
  CHECK(metro::hdf5_text_attribute_or_empty(scratch.file("nothing"), "name", on_failure).empty());
}

TEST_CASE("a table that cannot be created or opened is an error with its path") {
  const ScratchFolder scratch;

  expect_error(ExitCode::usage, {"cannot create", "none/a.h5", "No such file"},
               [&] { const Hdf5TableWriter file(scratch.file("none/a.h5"), 4); });
  expect_error(on_failure, {"nothing.h5", "cannot open"},
               [&] { const Hdf5TableReader file(scratch.file("nothing.h5"), on_failure); });
}

TEST_CASE("a disk that fills up while a table grows is the fault of the machine, and the program goes on") {
  const rlim_t room = GENERATE(3000, 20'000, 60'000);
  CAPTURE(room);
  const ScratchFolder scratch;

  {
    const metro::test::FileSizeLimit limit(room);
    expect_error(ExitCode::machine, {"cannot write", "full.h5"}, [&] {
      Hdf5TableWriter file(scratch.file("full.h5"), 64);
      Hdf5Column<double> numbers(file, "/numbers");
      double number = 1.0;
      for (int row = 0; row < 20'000; ++row) {
        number = number * 1.37 - std::floor(number * 1.37) + 1e-3;  // does not compress well
        numbers.push(number);
        if (row % 64 == 63) {
          numbers.flush();
          file.flush();
        }
      }
      file.close();
    });
  }

  small_file(scratch);  // it still works, and the program ends without a crash
}
