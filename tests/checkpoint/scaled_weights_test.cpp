// fp8 and mxfp4: what their codes and scales stand for, how they get into a checkpoint, and every way to be wrong.
#include "checkpoint/scaled_weights.hpp"
#include "base/file.hpp"
#include "checkpoint/checkpoint_reader.hpp"
#include "checkpoint/convert.hpp"
#include "checkpoint/folders.hpp"
#include "checkpoint/hdf5_edits.hpp"
#include "support/expect_error.hpp"
#include "support/scaled_folders.hpp"

#include <catch2/catch.hpp>

#include <cstring>
#include <limits>

using Catch::Matchers::Contains;
using metro::CheckpointReader;
using metro::convert_checkpoint;
using metro::ConvertedWeights;
using metro::ExitCode;
using metro::StoredType;
using metro::test::convert_into;
using metro::test::edit;
using metro::test::expect_error;
using metro::test::expect_unreadable;
using metro::test::inspect;
using metro::test::read_bytes;
using metro::test::Scaled;
using metro::test::ScaledFolders;
using metro::test::ScratchFolder;

namespace {

const std::string small = metro::test::families + "qwen3_moe";  // widths 72 and 34: no whole blocks

std::vector<float> floats_of(const std::string& bytes) {
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// The weights of an expert or matrix in a checkpoint by the definition in docs/formats.md; `first_row` of the dataset.
std::vector<float> weights_of(const CheckpointReader& reader, const std::string& name, std::int64_t part_rows) {
  const metro::TensorInfo& info = reader.info(name);
  const std::string codes = read_bytes(reader, name);
  const std::string scales = read_bytes(reader, name + "_scale");
  const std::vector<float> fp8_scales = floats_of(scales);
  const std::int64_t in = info.shape.back();
  const std::int64_t num_rows = info.num_elements() / in;
  std::vector<float> weights;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    for (std::int64_t k = 0; k < in; ++k) {
      if (info.type == StoredType::fp8) {
        const std::int64_t block_row = row / part_rows * ((part_rows + 127) / 128) + row % part_rows / 128;
        const float scale = fp8_scales[static_cast<std::size_t>(block_row * ((in + 127) / 128) + k / 128)];
        const auto code = static_cast<unsigned char>(codes[static_cast<std::size_t>(row * in + k)]);
        weights.push_back(static_cast<float>(metro::test::e4m3_value(code) * static_cast<double>(scale)));
      } else {
        const auto pair = static_cast<unsigned char>(codes[static_cast<std::size_t>((row * in + k) / 2)]);
        const auto exponent = static_cast<signed char>(scales[static_cast<std::size_t>((row * in + k) / 32)]);
        const unsigned code = k % 2 == 0 ? pair & 15U : pair >> 4U;
        weights.push_back(static_cast<float>(std::ldexp(metro::test::e2m1_value(code), exponent)));
      }
    }
  }
  return weights;
}

void expect_refusal(const ScaledFolders& folders, std::initializer_list<const char*> texts) {
  const ScratchFolder scratch;
  const std::string folder = folders.write_published();
  expect_error(ExitCode::checkpoint, texts,
               [&] { convert_checkpoint(folder, scratch.file("out.h5"), false, nullptr); });
  CHECK(metro::test::files_in(scratch).empty());
}

}  // namespace

TEST_CASE("every code of e4m3 and e2m1 and every power of two is the number that its bits say") {
  for (unsigned code = 0; code < 256; ++code) {
    if ((code & 127U) != 127U) {
      CAPTURE(code);
      CHECK(static_cast<double>(metro::widen_e4m3(static_cast<std::uint8_t>(code))) == metro::test::e4m3_value(code));
    }
  }
  CHECK(metro::widen_e4m3(0x7e) == 448.0F);
  CHECK(std::signbit(metro::widen_e4m3(0x80)));
  for (unsigned code = 0; code < 16; ++code) {
    CHECK(static_cast<double>(metro::widen_e2m1(code)) == metro::test::e2m1_value(code));
    for (int exponent = metro::least_mxfp4_exponent; exponent <= metro::largest_mxfp4_exponent; ++exponent) {
      CAPTURE(code, exponent);
      CHECK(static_cast<double>(metro::widen_e2m1(code) * metro::power_of_two(exponent)) ==
            std::ldexp(metro::test::e2m1_value(code), exponent));
    }
  }
}

TEST_CASE("rows of fp8 take the scale of their block, also where rows and matrix end within one") {
  const std::int64_t row_length = GENERATE(1, 72, 128, 130, 300);
  const std::int64_t first_row = GENERATE(0, 100, 127, 128);
  const std::int64_t num_rows = 60;
  const std::int64_t row_blocks = (row_length + 127) / 128;
  std::vector<float> scales;
  for (std::int64_t i = 0; i < 2 * row_blocks; ++i) {
    scales.push_back(0.1F + static_cast<float>(i));
  }
  std::vector<std::byte> codes;
  for (std::int64_t i = 0; i < num_rows * row_length; ++i) {
    codes.push_back(static_cast<std::byte>(i * 37 % 251 % 127));
  }
  std::vector<float> weights(codes.size());

  metro::widen(metro::Fp8Rows{codes, first_row, row_length, scales}, weights);

  for (std::int64_t i = 0; i < num_rows * row_length; ++i) {
    const std::int64_t row = first_row + i / row_length;
    const float scale = scales[static_cast<std::size_t>(row / 128 * row_blocks + i % row_length / 128)];
    const double exact =
        metro::test::e4m3_value(static_cast<unsigned>(i * 37 % 251 % 127)) * static_cast<double>(scale);
    REQUIRE(weights[static_cast<std::size_t>(i)] == static_cast<float>(exact));
  }
}

TEST_CASE("a checkpoint of fp8 or mxfp4 weights holds the published numbers, each matrix with blocks of its own") {
  const auto [source, form] =
      GENERATE(std::pair(small, Scaled::fp8), std::pair(metro::test::dense_and_moe, Scaled::fp8),
               std::pair(metro::test::tiny, Scaled::fp8), std::pair(metro::test::tiny, Scaled::mxfp4));
  const ScaledFolders folders(source, form);
  const ScratchFolder scratch, scratch_of_floats;

  const CheckpointReader reader(convert_into(scratch, folders.write_published()));

  const CheckpointReader floats(convert_into(scratch_of_floats, folders.write_widened()));
  std::int64_t num_scaled = 0;
  for (const auto& [name, info] : floats.tensors()) {
    CAPTURE(name);
    if (!metro::has_scales(reader.info(name).type)) {
      CHECK(read_bytes(reader, name) == read_bytes(floats, name));
      continue;
    }
    ++num_scaled;
    CHECK(reader.info(name).type == (form == Scaled::fp8 ? StoredType::fp8 : StoredType::mxfp4));
    const std::int64_t rows = info.shape[info.shape.size() - 2];
    const std::int64_t part_rows = name.ends_with("gate_up") ? rows / 2 : rows;
    CHECK(weights_of(reader, name, part_rows) == floats_of(read_bytes(floats, name)));
  }
  const metro::ModelSpec& spec = reader.spec();
  const std::int64_t of_experts = 2 * spec.num_moe_layers();
  CHECK(num_scaled == (form == Scaled::mxfp4 ? of_experts : 4 * spec.num_layers + 2 * spec.num_layers));
}

TEST_CASE("scales of fp8 may be bf16, and pieces of any size give the same file") {
  ScaledFolders folders(small, Scaled::fp8);
  const ScratchFolder scratch;
  for (auto& [name, tensor] : folders.published) {
    if (name.ends_with("_scale_inv")) {
      tensor.dtype = "BF16";
      std::string words;
      for (std::size_t i = 2; i < tensor.bytes.size(); i += 4) {
        words += tensor.bytes.substr(i, 2);
      }
      tensor.bytes = words;
    }
  }
  const std::string folder = folders.write_published();

  convert_checkpoint(folder, scratch.file("large.h5"), false, nullptr);
  convert_checkpoint(folder, scratch.file("small.h5"), false, nullptr, ConvertedWeights::stored, 4);

  CHECK(metro::read_file(scratch.file("small.h5"), ExitCode::input) ==
        metro::read_file(scratch.file("large.h5"), ExitCode::input));
  const CheckpointReader reader(scratch.file("large.h5"));
  const std::string& words = folders.published.at("model.layers.1.self_attn.q_proj.weight_scale_inv").bytes;
  std::string widened;
  widened.append(2, '\0').append(words.substr(0, 2));
  CHECK(read_bytes(reader, "/layers/001/attention/q_scale") == widened);
}

TEST_CASE("fp8 and mxfp4 become bf16 on request, with a note, other weights stay as they are") {
  const auto form = GENERATE(Scaled::fp8, Scaled::mxfp4);
  const ScaledFolders folders(metro::test::tiny, form);
  const ScratchFolder scratch, scratch_of_floats;

  const metro::ConvertSummary summary =
      convert_checkpoint(folders.write_published(), scratch.file("bf16.h5"), false, nullptr, ConvertedWeights::bf16);

  const CheckpointReader reader(scratch.file("bf16.h5"));
  const CheckpointReader floats(convert_into(scratch_of_floats, folders.write_widened()));
  for (const auto& [name, info] : floats.tensors()) {
    CAPTURE(name);
    REQUIRE(reader.info(name).type == StoredType::bf16);
    const std::string words = read_bytes(reader, name);
    const std::string numbers = read_bytes(floats, name);
    for (std::size_t i = 0; i < words.size() / 2; ++i) {
      float rounded = 0.0F;
      std::memcpy(reinterpret_cast<char*>(&rounded) + 2, words.data() + 2 * i, 2);
      float number = rounded;
      if (info.type == StoredType::f32) {
        std::memcpy(&number, numbers.data() + 4 * i, 4);
      }
      REQUIRE(std::abs(rounded - number) <= std::abs(number) * 0x1p-8F);
      REQUIRE((form == Scaled::fp8 || rounded == number));
    }
  }
  REQUIRE(summary.notes.size() == 1);
  CHECK_THAT(summary.notes[0],
             Contains(form == Scaled::fp8 ? "fp8 rounded to bf16: " : "mxfp4 widened to bf16 (exact): "));
  CHECK_THAT(summary.notes[0], Contains("model.layers.*.mlp.experts.*.up_proj.weight"));
}

TEST_CASE("fp8 where it cannot stay, or beside other types in one dataset, is widened to f32 with a note") {
  ScaledFolders folders(small, Scaled::fp8);
  const ScratchFolder scratch, scratch_of_floats;
  const std::string router = "model.layers.0.mlp.gate.weight";  // [10, 72]
  const std::string up = "model.layers.1.mlp.experts.3.up_proj.weight";
  const float scale = 0.01F;
  folders.published[router] = {"F8_E4M3", {10, 72}, std::string(720, '\x38')};  // 1.0
  folders.published[router + "_scale_inv"] = {"F32", {1, 1}, std::string(reinterpret_cast<const char*>(&scale), 4)};
  folders.published.erase(up + "_scale_inv");
  folders.published[up] = folders.widened.at(up);

  const metro::ConvertSummary summary =
      convert_checkpoint(folders.write_published(), scratch.file("out.h5"), false, nullptr);

  const CheckpointReader reader(scratch.file("out.h5"));
  const CheckpointReader floats(convert_into(scratch_of_floats, folders.write_widened()));
  CHECK(floats_of(read_bytes(reader, "/layers/000/gate")) == std::vector<float>(720, 0.01F));
  CHECK(reader.info("/layers/001/experts/gate_up").type == StoredType::f32);
  CHECK(read_bytes(reader, "/layers/001/experts/gate_up") == read_bytes(floats, "/layers/001/experts/gate_up"));
  REQUIRE(summary.notes.size() == 1);
  CHECK_THAT(summary.notes[0],
             Contains("fp8 widened to f32 (exact): ") && Contains("model.layers.*.mlp.gate.weight (1)"));
}

TEST_CASE("a code or a scale that is no number is refused by tensor and element") {
  ScaledFolders folders(small, Scaled::fp8);
  const std::string up = "model.layers.1.mlp.experts.2.up_proj.weight";
  const std::string good_codes = folders.published.at(up).bytes;
  const std::string good_scales = folders.published.at(up + "_scale_inv").bytes;
  const auto set_scale = [&](float scale) {
    std::memcpy(folders.published.at(up + "_scale_inv").bytes.data(), &scale, 4);
  };

  folders.published.at(up).bytes[1000] = GENERATE('\x7f', '\xff');
  expect_refusal(folders, {"/model.safetensors: tensor model.layers.1.mlp.experts.2.up_proj.weight has", "a NaN",
                           "at element 1000"});
  folders.published.at(up).bytes = good_codes;
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -1.0F, 1e37F}) {
    set_scale(bad);
    expect_refusal(folders, {"tensor model.layers.1.mlp.experts.2.up_proj.weight_scale_inv has the scale",
                             "not a number from 0 to 2^119", "at element 0"});
  }
  set_scale(0.0F);
  folders.published.at(up).bytes = std::string(good_codes.size(), '\x80');
  folders.published.at(up).bytes[77] = '\x01';
  expect_refusal(folders,
                 {"up_proj.weight has a weight that is not 0, but its scale in", "_scale_inv is at element 77"});
}

TEST_CASE("an exponent of mxfp4 that is NaN or too large is refused by tensor and element") {
  ScaledFolders folders(metro::test::tiny, Scaled::mxfp4);
  folders.published.at("model.layers.2.mlp.experts.1.down_proj.weight_scales").bytes[5] = GENERATE('\xff', '\xfd');

  expect_refusal(folders, {"tensor model.layers.2.mlp.experts.1.down_proj.weight_scales has the scale",
                           "not from 0 to 252", "at element 5"});
}

TEST_CASE("scales that are missing or of another shape or type are refused by name") {
  ScaledFolders fp8(small, Scaled::fp8);
  const std::string k = "model.layers.0.self_attn.k_proj.weight";
  fp8.published[k + "_scale_inv"].dtype = "I32";
  expect_refusal(fp8, {"k_proj.weight_scale_inv has type I32, which is not supported (F32, BF16, F16)"});
  fp8.published[k + "_scale_inv"] = {"F32", {1, 2}, std::string(8, '\0')};
  expect_refusal(fp8, {"k_proj.weight_scale_inv has shape [1, 2], config.json asks for [1, 1]"});
  fp8.published.erase(k + "_scale_inv");
  expect_refusal(fp8, {"tensor model.layers.0.self_attn.k_proj.weight_scale_inv is missing"});

  ScaledFolders mxfp4(metro::test::tiny, Scaled::mxfp4);
  const std::string down = "model.layers.0.mlp.experts.1.down_proj.weight";
  const metro::test::RawTensor scales = mxfp4.published.at(down + "_scales");
  mxfp4.published[down + "_scales"].dtype = "I8";
  expect_refusal(mxfp4, {"down_proj.weight_scales has type I8, which is not supported (U8)"});
  mxfp4.published[down + "_scales"] = {"U8", {128, 1}, std::string(128, '\0')};
  expect_refusal(mxfp4, {"down_proj.weight_scales has shape [128, 1], config.json asks for [128, 2]"});
  mxfp4.published.erase(down + "_scales");
  expect_refusal(mxfp4, {"down_proj.weight_scales is missing"});
}

TEST_CASE("mxfp4 of rows that are no whole blocks is refused") {
  ScaledFolders folders(small, Scaled::fp8);
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  folders.published.erase(q);
  folders.published[q + "_blocks"] = {"U8", {120, 2, 16}, std::string(3840, '\0')};

  expect_refusal(folders,
                 {"q_proj.weight_blocks is mxfp4, but config.json gives it rows of 72 weights, no whole blocks"});
}

TEST_CASE("other weights than those of the folder are asked for in vain") {
  const ScratchFolder scratch;
  const ScaledFolders folders(small, Scaled::fp8);

  expect_error(ExitCode::usage, {"--weights int8: tensor model.layers.0.self_attn.q_proj.weight is fp8 already"}, [&] {
    convert_checkpoint(folders.write_published(), scratch.file("out.h5"), false, nullptr, ConvertedWeights::int8);
  });
  expect_error(ExitCode::usage, {"--weights bf16: ", small.c_str(), "no fp8 or mxfp4 weights"},
               [&] { convert_checkpoint(small, scratch.file("out.h5"), false, nullptr, ConvertedWeights::bf16); });
}

TEST_CASE("inspect shows fp8 and mxfp4 with their scales, verified") {
  const ScratchFolder scratch;
  const std::string fp8 =
      inspect(convert_into(scratch, ScaledFolders(metro::test::tiny, Scaled::fp8).write_published()));
  CHECK_THAT(fp8,
             Contains("/layers/005/experts/gate_up      [32, 128, 128]     fp8    512.0 KiB  32 experts of 16.0 KiB"));
  CHECK_THAT(fp8, Contains("/layers/005/experts/gate_up_scale [32, 2, 1]         f32        256 B  32 experts of 8 B"));
  CHECK_THAT(fp8, Contains("verified: all 105 tensors have their digests"));

  const std::string mxfp4 =
      inspect(convert_into(scratch, ScaledFolders(metro::test::tiny, Scaled::mxfp4).write_published()));
  CHECK_THAT(mxfp4,
             Contains("/layers/005/experts/gate_up      [32, 128, 128]     mxfp4  256.0 KiB  32 experts of 8.0 KiB"));
  CHECK_THAT(mxfp4,
             Contains("/layers/005/experts/gate_up_scale [32, 128, 4]       int8    16.0 KiB  32 experts of 512 B"));
}

TEST_CASE("fp8 and mxfp4 in files of older versions, of other tensors or with other scales are refused") {
  const ScratchFolder scratch;
  const std::string path = convert_into(scratch, ScaledFolders(small, Scaled::fp8).write_published());
  const char* scale = "/layers/001/experts/gate_up_scale";

  edit(path, [](hid_t file) { metro::test::set_integer(file, "version", 2); });
  expect_unreadable(path, {"/attention/q is fp8, which files of version 2 do not have"});
  edit(path, [&](hid_t file) {
    metro::test::set_integer(file, "version", 3);
    metro::test::replace_dataset(file, scale, H5T_IEEE_F32LE, {10, 1, 1}, false);
  });
  expect_unreadable(path, {"gate_up_scale has shape [10, 1, 1], the model needs [10, 2, 1]"});
  edit(path, [](hid_t file) {
    metro::test::replace_dataset(file, "/layers/000/attention/q_scale", H5T_STD_I8LE, {1, 1}, false);
  });
  expect_unreadable(path, {"/layers/000/attention/q_scale is int8, must be f32"});
  edit(path, [](hid_t file) {
    const hid_t type = H5Tcreate(H5T_OPAQUE, 1);
    REQUIRE(H5Tset_tag(type, "2 x e2m1") >= 0);
    metro::test::replace_dataset(file, "/layers/000/attention/q", type, {120, 36}, false);
    REQUIRE(H5Tclose(type) >= 0);
  });
  expect_unreadable(path, {"/layers/000/attention/q is mxfp4, but its rows of 72 weights are no whole blocks of 32"});
}
