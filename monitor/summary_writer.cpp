#include "ddprun/monitor/summary_writer.h"

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "monitor/event.h"
#include "monitor/event_file.h"

namespace ddp {
namespace {

EventTime at(int64_t step) {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return {.wall_time = std::chrono::duration<double>(since_1970).count(), .step = step};
}

std::filesystem::path folder_of(const std::filesystem::path& folder, bool every_rank, int rank) {
  if (!every_rank) return folder;
  char name[32];
  std::snprintf(name, sizeof(name), "rank-%05d", rank);
  return folder / name;
}

std::optional<int64_t> purge_step_of(const SummaryWriterOptions& options) {
  if (!options.resume_after) return options.purge_step;
  if (options.purge_step) {
    throw std::invalid_argument(
        "SummaryWriter: give either `.purge_step`, the first step to drop, or `.resume_after`, the last step to keep");
  }
  return *options.resume_after + 1;
}

}  // namespace

/// The file of the run, and one file for each curve of add_scalars().
class SummaryWriter::Files {
 public:
  Files(std::filesystem::path folder, const SummaryWriterOptions& options)
      : folder_(std::move(folder)),
        options_{.purge_step = purge_step_of(options),
                 .flush_interval = options.flush_interval,
                 .max_queue_bytes = options.max_queue_bytes},
        main_(folder_, options_) {}

  EventFile& main() { return main_; }

  EventFile& of_curve(std::string name) {
    std::replace(name.begin(), name.end(), '/', '_');  // so that the name has no subfolders and stays within the folder
    const std::lock_guard lock(mutex_);
    auto& file = curves_[name];
    if (!file) file = std::make_unique<EventFile>(folder_ / name, options_);
    return *file;
  }

  template <typename Action>
  void for_each(Action action) {
    action(main_);
    const std::lock_guard lock(mutex_);
    for (auto& [name, file] : curves_) {
      if (file) action(*file);
    }
  }

 private:
  std::filesystem::path folder_;
  EventFileOptions options_;
  EventFile main_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<EventFile>> curves_;
};

SummaryWriter::SummaryWriter(const std::filesystem::path& folder, const SummaryWriterOptions& options)
    : SummaryWriter(folder, options,
                    require_rank("SummaryWriter", options.rank, "write their own file into " + folder.string(),
                                 "SummaryWriter(folder, group)")) {}

SummaryWriter::SummaryWriter(const std::filesystem::path& folder, const SummaryWriterOptions& options, int rank)
    : folder_(folder_of(folder, options.every_rank, rank)) {
  static_cast<void>(purge_step_of(options));  // throws on every rank, not only on the rank that writes a file
  if ((rank == 0 || options.every_rank) && !folder.empty()) files_ = std::make_unique<Files>(folder_, options);
}

SummaryWriter::~SummaryWriter() = default;
SummaryWriter::SummaryWriter(SummaryWriter&& other) noexcept = default;
SummaryWriter& SummaryWriter::operator=(SummaryWriter&& other) noexcept = default;

void SummaryWriter::add_scalar(std::string_view tag, double value, int64_t step) {
  if (files_) files_->main().add(encode_scalar(at(step), tag, value));
}

void SummaryWriter::add_scalars(std::string_view tag, const std::map<std::string, double>& values, int64_t step) {
  if (!files_) return;
  const EventTime time = at(step);
  for (const auto& [name, value] : values) {
    files_->of_curve(std::string(tag) + "_" + name).add(encode_scalar(time, tag, value));
  }
}

void SummaryWriter::add_histogram(std::string_view tag, std::span<const float> values, int64_t step) {
  if (files_) files_->main().add(encode_histogram(at(step), tag, make_histogram(values)));
}

void SummaryWriter::add_histogram(std::string_view tag, std::span<const double> values, int64_t step) {
  if (files_) files_->main().add(encode_histogram(at(step), tag, make_histogram(values)));
}

void SummaryWriter::add_histogram(std::string_view tag, std::span<const int64_t> values, int64_t step) {
  if (files_) files_->main().add(encode_histogram(at(step), tag, make_histogram(values)));
}

void SummaryWriter::add_images(std::string_view tag, const ImagesView<float>& images, int64_t step) {
  if (files_) add_bitmap(tag, image_grid(images), step);
}

void SummaryWriter::add_images(std::string_view tag, const ImagesView<uint8_t>& images, int64_t step) {
  if (files_) add_bitmap(tag, image_grid(images), step);
}

void SummaryWriter::add_bitmap(std::string_view tag, const Bitmap& bitmap, int64_t step) {
  files_->main().add(encode_image(at(step), tag, bitmap));
}

void SummaryWriter::add_text(std::string_view tag, std::string_view text, int64_t step) {
  if (files_) files_->main().add(encode_text(at(step), tag, text));
}

void SummaryWriter::add_hparams(const std::map<std::string, HyperParameter>& parameters,
                                const std::map<std::string, double>& metrics, int64_t step) {
  if (!files_) return;
  files_->main().add(encode_hparams(at(step).wall_time, parameters, metrics));
  for (const auto& [tag, value] : metrics) add_scalar(tag, value, step);
}

void SummaryWriter::flush() {
  if (files_) files_->for_each([](EventFile& file) { file.flush(); });
}

void SummaryWriter::close() {
  if (files_) files_->for_each([](EventFile& file) { file.close(); });
}

}  // namespace ddp
