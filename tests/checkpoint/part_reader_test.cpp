// Parts that lie in another order than the dataset, against what that order means element by element.
#include "checkpoint/part_reader.hpp"

#include "checkpoint/folders.hpp"
#include "support/expect_error.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

using metro::ConvertedWeights;
using metro::ExitCode;
using metro::PartOrder;
using metro::PartReader;
using metro::PlannedPart;
using metro::SafetensorsFolder;
using metro::SourceMatrix;
using metro::TensorSource;
using metro::test::ScratchFolder;

namespace {

// Where element (row, column) of the dataset's matrix lies in the file: the definition of PartOrder.
std::size_t place_in_source(const SourceMatrix& matrix, std::int64_t row, std::int64_t column) {
  const std::int64_t half = matrix.num_rows / 2;
  const std::int64_t from = !matrix.order.is_interleaved ? row : row < half ? 2 * row : 2 * (row - half) + 1;
  return static_cast<std::size_t>(matrix.order.is_transposed ? column * matrix.num_rows + from
                                                             : from * matrix.num_columns + column);
}

// Bytes that differ from element to element of a matrix and from byte to byte of an element.
std::vector<std::byte> distinct_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t idx = 0; idx < count; ++idx) {
    bytes[idx] = static_cast<std::byte>((idx * 167 + idx / 256) & 0xff);
  }
  return bytes;
}

// A folder with one bf16 tensor "fused" [2, 6, 10] whose elements are 0, 1, 2, ... as 16-bit words: two experts, each
// [6, 10] in the file and so 10 rows of 6 in the dataset.
class FusedFolder {
 public:
  FusedFolder() {
    words.resize(2 * 6 * 10);
    std::iota(words.begin(), words.end(), std::uint16_t{0});
  }
  SafetensorsFolder open() {
    std::string bytes(2 * words.size(), '\0');
    std::memcpy(bytes.data(), words.data(), bytes.size());
    metro::test::write_safetensors(scratch_.file("model.safetensors"), {{"fused", {"BF16", {2, 6, 10}, bytes}}});
    return SafetensorsFolder(scratch_.path().string());
  }
  static TensorSource source() {
    TensorSource source{"/layers/000/experts/gate_up", {2, 10, 6}, {"fused"}, true};
    source.order = {true, true, true};
    return source;
  }

  std::vector<std::uint16_t> words;

 private:
  ScratchFolder scratch_;
};

}  // namespace

TEST_CASE("a matrix is arranged as the order says, element by element") {
  const bool is_transposed = GENERATE(false, true);
  const bool is_interleaved = GENERATE(false, true);
  const std::int64_t element_bytes = GENERATE(1, 2, 4);
  const auto [num_rows, num_columns] =
      GENERATE(std::pair<std::int64_t, std::int64_t>{2, 1}, std::pair<std::int64_t, std::int64_t>{6, 7},
               std::pair<std::int64_t, std::int64_t>{128, 64}, std::pair<std::int64_t, std::int64_t>{130, 67});
  const SourceMatrix matrix{num_rows, num_columns, element_bytes, {false, is_transposed, is_interleaved}};
  const auto width = static_cast<std::size_t>(element_bytes);
  const auto source = distinct_bytes(static_cast<std::size_t>(num_rows * num_columns) * width);
  std::vector<std::byte> arranged(source.size());

  metro::arrange_matrix(matrix, source, arranged);

  std::size_t num_wrong = 0;
  std::size_t idx = 0;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    for (std::int64_t column = 0; column < num_columns; ++column, ++idx) {
      const std::size_t from = place_in_source(matrix, row, column);
      num_wrong += std::memcmp(&arranged[idx * width], &source[from * width], width) != 0 ? 1U : 0U;
    }
  }
  CHECK(num_wrong == 0);
}

TEST_CASE("a fused part has the experts first and the matrix as it lies in the file") {
  const TensorSource gate_up = FusedFolder::source();
  TensorSource bias{"/layers/000/experts/gate_up_bias", {2, 10}, {"bias"}, true};
  bias.order = {true, false, true};

  CHECK(metro::part_shape(gate_up) == std::vector<std::int64_t>{2, 6, 10});
  CHECK(metro::matrix_shape(gate_up) == std::vector<std::int64_t>{10, 6});
  CHECK(metro::part_shape(bias) == std::vector<std::int64_t>{2, 10});
  CHECK(metro::matrix_shape(bias) == std::vector<std::int64_t>{10});
}

TEST_CASE("a rearranged part reads alike in pieces of any size") {
  FusedFolder fused;
  const SafetensorsFolder folder = fused.open();
  const metro::ConvertPlan plan =
      metro::plan_conversion({FusedFolder::source()}, folder, "folder", ConvertedWeights::stored);
  const PlannedPart& part = plan.parts.front().front();
  const SourceMatrix expert{10, 6, 2, part.order};
  const std::size_t piece = GENERATE(2, 14, 118, 120, 122, 240);
  PartReader reader(folder);
  std::vector<std::uint16_t> words(fused.words.size());
  const auto bytes = std::as_writable_bytes(std::span(words));

  for (std::size_t done = 0; done < bytes.size(); done += piece) {
    const std::size_t count = std::min(piece, bytes.size() - done);
    const auto read = reader.stored(part, static_cast<std::int64_t>(done), static_cast<std::int64_t>(count));
    std::copy(read.begin(), read.end(), bytes.begin() + static_cast<std::ptrdiff_t>(done));
  }

  std::vector<std::uint16_t> expected;
  for (std::size_t of_expert = 0; of_expert < 2; ++of_expert) {
    for (std::int64_t row = 0; row < 10; ++row) {
      for (std::int64_t column = 0; column < 6; ++column) {
        expected.push_back(fused.words[60 * of_expert + place_in_source(expert, row, column)]);
      }
    }
  }
  CHECK(words == expected);
}

TEST_CASE("rows of mxfp4 that lie interleaved come in the order of the dataset, with their scales") {
  constexpr std::int64_t num_rows = 6, width = 64, half = num_rows / 2;
  const ScratchFolder scratch;
  std::string blocks, scales;
  for (std::int64_t i = 0; i < 2 * num_rows * width / 2; ++i) {
    blocks += static_cast<char>(i * 37 + i / 256);
  }
  for (std::int64_t i = 0; i < 2 * num_rows * width / 32; ++i) {
    scales += static_cast<char>(120 + i % 11);
  }
  metro::test::write_safetensors(scratch.file("model.safetensors"),
                                 {{"fused_blocks", {"U8", {2, num_rows, width / 32, 16}, blocks}},
                                  {"fused_scales", {"U8", {2, num_rows, width / 32}, scales}}});
  TensorSource source{"/layers/000/experts/gate_up", {2, num_rows, width}, {"fused"}, true};
  source.may_be_quantised = true;
  source.order = {true, true, true};
  const SafetensorsFolder folder(scratch.path().string());
  const metro::ConvertPlan plan = metro::plan_conversion({source}, folder, "folder", ConvertedWeights::stored);
  PartReader reader(folder);

  const auto read = reader.floats(plan.parts.front().front(), 0, 2 * num_rows);

  const double magnitudes[] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
  std::size_t num_wrong = 0;
  for (std::int64_t row = 0; row < 2 * num_rows; ++row) {
    const std::int64_t in_expert = row % num_rows;
    const std::int64_t from = row - in_expert + (in_expert < half ? 2 * in_expert : 2 * (in_expert - half) + 1);
    for (std::int64_t column = 0; column < width; ++column) {
      const auto pair = static_cast<unsigned char>(blocks[static_cast<std::size_t>((from * width + column) / 2)]);
      const int code = column % 2 == 0 ? pair & 15 : pair >> 4;
      const auto scale = static_cast<unsigned char>(scales[static_cast<std::size_t>((from * width + column) / 32)]);
      const double weight = std::ldexp(code < 8 ? magnitudes[code] : -magnitudes[code - 8], scale - 127);
      num_wrong += static_cast<double>(read[static_cast<std::size_t>(row * width + column)]) != weight ? 1U : 0U;
    }
  }
  CHECK(read.size() == static_cast<std::size_t>(2 * num_rows * width));
  CHECK(num_wrong == 0);
}

TEST_CASE("a weight of a rearranged part that is no number is named by its place in the file") {
  FusedFolder fused;
  fused.words[60 + 17] = 0x7f80;  // an infinity
  const SafetensorsFolder folder = fused.open();
  const metro::ConvertPlan plan =
      metro::plan_conversion({FusedFolder::source()}, folder, "folder", ConvertedWeights::stored);
  PartReader reader(folder);

  metro::test::expect_error(ExitCode::checkpoint, {"tensor fused has a NaN or an infinity at element 77"},
                            [&] { reader.stored(plan.parts.front().front(), 0, 240); });
}

TEST_CASE("a fused tensor of another shape is refused with the shape that its file should have") {
  FusedFolder fused;
  const SafetensorsFolder folder = fused.open();
  TensorSource source = FusedFolder::source();
  source.shape = {2, 6, 10};

  metro::test::expect_error(ExitCode::checkpoint,
                            {"tensor fused has shape [2, 6, 10], config.json asks for [2, 10, 6]"},
                            [&] { metro::plan_conversion({source}, folder, "folder", ConvertedWeights::stored); });
}
