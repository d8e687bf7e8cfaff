#include "checkpoint/tensor_copier.hpp"

#include "base/integers.hpp"
#include "checkpoint/quantise.hpp"
#include "checkpoint/scaled_weights.hpp"

#include <algorithm>
#include <memory>

namespace metro {

namespace {

// Digests of a tensor whose bytes arrive in pieces of any size: one, or one per `unit_bytes`.
class UnitDigests {
 public:
  explicit UnitDigests(std::int64_t unit_bytes) : unit_bytes_(unit_bytes) {}

  void update(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto count = std::min(bytes.size(), at(unit_bytes_ - bytes_in_unit_));
      stream_->update(bytes.first(count));
      bytes_in_unit_ += static_cast<std::int64_t>(count);
      if (bytes_in_unit_ == unit_bytes_) {
        digests_.push_back(stream_->digest());
        stream_ = std::make_unique<DigestStream>();
        bytes_in_unit_ = 0;
      }
      bytes = bytes.subspan(count);
    }
  }
  const std::vector<Digest>& digests() const { return digests_; }

 private:
  std::int64_t unit_bytes_;
  std::int64_t bytes_in_unit_ = 0;
  std::unique_ptr<DigestStream> stream_ = std::make_unique<DigestStream>();
  std::vector<Digest> digests_;
};

// The place of a tensor in the file, filled from its begin to its end.
class Destination {
 public:
  Destination(const FileDescriptor& out, const TensorInfo& tensor)
      : out_(out),
        offset_(tensor.file_offset),
        digests_(tensor.num_bytes() / (tensor.is_expert_tensor ? tensor.shape.front() : 1)) {}

  void append(std::span<const std::byte> bytes) {
    digests_.update(bytes);
    out_.write_at(offset_, bytes);
    offset_ += static_cast<std::int64_t>(bytes.size());
  }
  const std::vector<Digest>& digests() const { return digests_.digests(); }

 private:
  const FileDescriptor& out_;
  std::int64_t offset_;
  UnitDigests digests_;
};

}  // namespace

TensorCopier::TensorCopier(const SafetensorsFolder& folder, const FileDescriptor& out, std::int64_t bytes_total,
                           std::int64_t chunk_bytes, const std::function<void(const ConvertProgress&)>& report)
    : reader_(folder), out_(out), chunk_bytes_(chunk_bytes), report_(report) {
  progress_.bytes_total = bytes_total;
}

void TensorCopier::report(std::int64_t num_bytes) {
  progress_.bytes_done += num_bytes;
  if (report_) {
    report_(progress_);
  }
}

template <class F>
void TensorCopier::for_each_rows(const PlannedPart& part, const F& work) const {
  const std::int64_t row_bytes = std::max<std::int64_t>(bytes_of(part.type, part.row_length), 1);
  const std::int64_t most_rows = std::max<std::int64_t>(chunk_bytes_ / row_bytes, 1);
  for (std::int64_t row = 0; row < part.num_rows; row += most_rows) {
    work(row, std::min(most_rows, part.num_rows - row));
  }
}

void TensorCopier::copy(const std::vector<PlannedPart>& parts, TensorInfo& tensor) {
  progress_.tensor = tensor.dataset;
  Destination destination(out_, tensor);
  const auto append = [&](std::span<const std::byte> bytes) {
    destination.append(bytes);
    report(std::ssize(bytes));
  };
  const SourceType kept = tensor.type == StoredType::bf16 ? SourceType::bf16 : SourceType::f32;
  for (const PlannedPart& part : parts) {
    if (part.type == kept) {
      for (std::int64_t done = 0; done < part.entry->num_bytes; done += chunk_bytes_) {
        append(reader_.stored(part, done, std::min(chunk_bytes_, part.entry->num_bytes - done)));
      }
      continue;
    }
    for_each_rows(part, [&](std::int64_t first_row, std::int64_t num_rows) {
      const auto floats = reader_.floats(part, first_row, num_rows);
      if (kept == SourceType::f32) {
        return append(std::as_bytes(floats));
      }
      words_.resize(floats.size());
      round_to_bf16(floats, words_);
      append(std::as_bytes(std::span(words_)));
    });
  }
  tensor.digests = destination.digests();
}

void TensorCopier::copy(const std::vector<PlannedPart>& parts, TensorInfo& tensor, TensorInfo& scales) {
  progress_.tensor = tensor.dataset;
  Destination weights_place(out_, tensor);
  Destination scales_place(out_, scales);
  const auto append = [this](Destination& place, std::span<const std::byte> bytes) {
    place.append(bytes);
    report(std::ssize(bytes));
  };
  for (const PlannedPart& part : parts) {
    for_each_rows(part, [&](std::int64_t first_row, std::int64_t num_rows) {
      if (tensor.type == StoredType::int8) {
        const auto floats = reader_.floats(part, first_row, num_rows);
        scales_.resize(at(num_rows));
        quantised_.resize(floats.size());
        quantise_rows(floats, scales_, quantised_);
        append(weights_place, std::as_bytes(std::span(quantised_)));
        return append(scales_place, std::as_bytes(std::span(scales_)));
      }
      append(weights_place, reader_.stored(part, bytes_of(part.type, first_row * part.row_length),
                                           bytes_of(part.type, num_rows * part.row_length)));
      if (tensor.type == StoredType::mxfp4) {
        const auto published = reader_.exponents(part, first_row, num_rows);
        exponents_.resize(published.size());
        unbias(published, exponents_);
        append(scales_place, exponents_);
      }
    });
    if (tensor.type == StoredType::fp8) {
      append(scales_place, std::as_bytes(reader_.fp8_scales(part)));
    }
  }
  tensor.digests = weights_place.digests();
  scales.digests = scales_place.digests();
}

}  // namespace metro
