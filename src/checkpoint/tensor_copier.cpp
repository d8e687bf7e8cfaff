#include "checkpoint/tensor_copier.hpp"

#include "base/integers.hpp"
#include "checkpoint/quantise.hpp"

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
    : parts_(folder), out_(out), chunk_bytes_(chunk_bytes), report_(report) {
  progress_.bytes_total = bytes_total;
}

void TensorCopier::report(std::int64_t num_bytes) {
  progress_.bytes_done += num_bytes;
  if (report_) {
    report_(progress_);
  }
}

void TensorCopier::copy(const std::vector<PlannedPart>& parts, TensorInfo& tensor) {
  progress_.tensor = tensor.dataset;
  Destination destination(out_, tensor);
  for (const PlannedPart& part : parts) {
    const bool is_widened = bytes_of(part.type) != bytes_of(tensor.type);
    for (std::int64_t done = 0; done < part.entry->num_bytes; done += chunk_bytes_) {
      source_.resize(at(std::min(chunk_bytes_, part.entry->num_bytes - done)));
      parts_.read(part, done, source_);
      if (is_widened) {
        widened_.resize(2 * source_.size());
        widen(part.type, source_, widened_);
      }
      const std::vector<std::byte>& bytes = is_widened ? widened_ : source_;
      destination.append(bytes);
      report(std::ssize(bytes));
    }
  }
  tensor.digests = destination.digests();
}

void TensorCopier::read_rows(const PlannedPart& part, std::int64_t first_row, std::int64_t num_rows,
                             std::int64_t row_length) {
  const std::int64_t offset = first_row * row_length * bytes_of(part.type);
  rows_.resize(at(num_rows * row_length));
  const auto floats = std::as_writable_bytes(std::span(rows_));
  if (part.type == SourceType::f32) {
    return parts_.read(part, offset, floats);
  }
  source_.resize(floats.size() / 2);
  parts_.read(part, offset, source_);
  widen(part.type, source_, floats);
}

void TensorCopier::quantise(const std::vector<PlannedPart>& parts, TensorInfo& tensor, TensorInfo& scales) {
  progress_.tensor = tensor.dataset;
  Destination weights_place(out_, tensor);
  Destination scales_place(out_, scales);
  const std::int64_t row_length = tensor.shape.back();
  for (const PlannedPart& part : parts) {
    const std::int64_t row_bytes = row_length * bytes_of(part.type);
    const std::int64_t num_rows = part.entry->num_bytes / row_bytes;
    const std::int64_t most_rows = std::max<std::int64_t>(chunk_bytes_ / row_bytes, 1);
    for (std::int64_t row = 0; row < num_rows; row += most_rows) {
      read_rows(part, row, std::min(most_rows, num_rows - row), row_length);
      scales_.resize(rows_.size() / at(row_length));
      quantised_.resize(rows_.size());
      quantise_rows(rows_, scales_, quantised_);
      weights_place.append(std::as_bytes(std::span(quantised_)));
      scales_place.append(std::as_bytes(std::span(scales_)));
      report(std::ssize(quantised_) + static_cast<std::int64_t>(std::span(scales_).size_bytes()));
    }
  }
  tensor.digests = weights_place.digests();
  scales.digests = scales_place.digests();
}

}  // namespace metro
