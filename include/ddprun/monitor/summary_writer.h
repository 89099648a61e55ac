// Writes event files for TensorBoard, like torch.utils.tensorboard.SummaryWriter, but without LibTorch, Python or
// protobuf.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <ddprun/base/rank_info.h>
#include <ddprun/detail/base/rank_option.h>
#include <ddprun/detail/monitor/tensor_values.h>
#include <ddprun/monitor/summary_values.h>

namespace ddp {

struct Figure;

/// Settings of a SummaryWriter, all optional.
struct SummaryWriterOptions {
  std::optional<int> rank{};  ///< this process's rank; ranks other than 0 write nothing
  bool every_rank = false;    ///< every rank writes, into `<folder>/rank-<rank>`; TensorBoard shows each as a run
  /// For a resumed run: the last step to keep, usually that of the checkpoint. Readers drop the events of later steps
  /// in earlier files of the folder.
  std::optional<int64_t> resume_after{};
  /// The same in PyTorch's form: the first step to drop, which is resume_after + 1. Do not set both.
  std::optional<int64_t> purge_step{};
  std::chrono::milliseconds flush_interval{10'000};  ///< the maximum time that an event waits in memory
  size_t max_queue_bytes = size_t{64} << 20;         ///< if more bytes are queued, calls wait for the disk
};

/// A run's event files. Calls encode events in the calling thread; a separate thread writes them to disk. Safe for
/// concurrent calls. No call communicates. All calls do nothing on a rank that does not write, and with an empty folder
/// (the user wants no events).
///
///     ddp::SummaryWriter writer("runs/cifar10", group);
///     writer.add_scalar("loss/train", loss, step);
///
/// Tags are UTF-8 (invalid bytes are replaced); a `/` in a tag makes a group. Values are float32, as in Python. Every
/// call throws std::runtime_error, naming the file and the cause, if the file cannot be written.
class SummaryWriter {
 public:
  /// Creates the folder and a new file in it; earlier files stay unchanged. For one process, or with `.rank`. Throws
  /// std::invalid_argument in a job of several ranks without `.rank`, and if both purge_step and resume_after are set.
  explicit SummaryWriter(const std::filesystem::path& folder, const SummaryWriterOptions& options = {});

  /// The same for a rank of a ProcessGroup, GroupHandle or any other type with rank() and size().
  template <RankedGroup Group>
  SummaryWriter(const std::filesystem::path& folder, const Group& group, const SummaryWriterOptions& options = {})
      : SummaryWriter(folder, with_rank("SummaryWriter", options, group)) {}

  ~SummaryWriter();
  SummaryWriter(SummaryWriter&& other) noexcept;
  SummaryWriter& operator=(SummaryWriter&& other) noexcept;

  /// Adds a point to a curve.
  void add_scalar(std::string_view tag, double value, int64_t step = 0);
  /// The same for a tensor of one element. Here and below, on ranks that write, the host waits for the tensor's device.
  template <TensorLike Tensor>
  void add_scalar(std::string_view tag, const Tensor& value, int64_t step = 0) {
    if (is_active()) add_scalar(tag, value.template item<double>(), step);
  }

  /// Adds points to several curves in one chart. Each curve is written to a separate run, `<folder>/<tag>_<name>`,
  /// under the same tag.
  void add_scalars(std::string_view tag, const std::map<std::string, double>& values, int64_t step = 0);

  /// Adds the distribution of the values; see make_histogram().
  void add_histogram(std::string_view tag, std::span<const float> values, int64_t step = 0);
  /// The same for doubles.
  void add_histogram(std::string_view tag, std::span<const double> values, int64_t step = 0);
  /// The same for integers.
  void add_histogram(std::string_view tag, std::span<const int64_t> values, int64_t step = 0);

  /// The same for a tensor of any shape.
  template <TensorLike Tensor>
  void add_histogram(std::string_view tag, const Tensor& values, int64_t step = 0) {
    if (!is_active()) return;
    detail::with_numbers(values, [&](const auto& numbers) { add_histogram(tag, numbers, step); });
  }

  /// Adds one image, or several images as a grid with 8 per row, as PNG. Throws std::invalid_argument for a shape that
  /// is not one of images.
  void add_images(std::string_view tag, const ImagesView<float>& images, int64_t step = 0);
  /// The same for bytes.
  void add_images(std::string_view tag, const ImagesView<uint8_t>& images, int64_t step = 0);

  /// The same for a tensor (N, C, H, W) with 1 to 4 channels: uint8, or another dtype with values from 0 to 1, as in
  /// Python.
  template <TensorLike Tensor>
  void add_images(std::string_view tag, const Tensor& images, int64_t step = 0) {
    if (is_active()) detail::with_images(images, [&](const auto& view) { add_images(tag, view, step); });
  }
  /// Adds one image, (C, H, W) or (H, W).
  template <TensorLike Tensor>
  void add_image(std::string_view tag, const Tensor& image, int64_t step = 0) {
    if (image.dim() > 3) throw std::invalid_argument("add_image: expected one image, (C, H, W) or (H, W)");
    add_images(tag, image, step);
  }

  /// Adds a chart of lines as an image: <ddprun/monitor/figure.h>. Throws as Figure::draw() does.
  void add_figure(std::string_view tag, const Figure& figure, int64_t step = 0);

  /// Adds a text, which may contain Markdown.
  void add_text(std::string_view tag, std::string_view text, int64_t step = 0);

  /// Writes the run's entry on the HParams page. The metrics are also written as scalars, so their tags must not be
  /// used for other scalars.
  void add_hparams(const std::map<std::string, HyperParameter>& parameters,
                   const std::map<std::string, double>& metrics, int64_t step = 0);

  /// Returns when all events so far are in the files. They then survive the end of the process, even by SIGKILL.
  void flush();

  /// Calls flush() and closes the files: no further call is allowed. The destructor calls it, and prints errors on
  /// standard error.
  void close();

  /// Whether this rank writes.
  bool is_active() const { return files_ != nullptr; }
  /// The folder that this rank writes to, or would write to.
  const std::filesystem::path& folder() const { return folder_; }

 private:
  class Files;

  SummaryWriter(const std::filesystem::path& folder, const SummaryWriterOptions& options, int rank);
  void add_bitmap(std::string_view tag, const Bitmap& bitmap, int64_t step);

  std::filesystem::path folder_;
  std::unique_ptr<Files> files_;
  bool has_warned_ = false;  // whether the warning about missing figures was printed
};

}  // namespace ddp
