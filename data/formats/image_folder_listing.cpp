#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include <ddprun/data/byte_source.h>
#include <ddprun/samplers/shard.h>

#include "base/block_file_size_signal.h"
#include "data/formats/image_format.h"
#include "data/formats/limits.h"
#include "ddprun/data/file_formats.h"

namespace ddp {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr uint64_t kMaxIndexBytes = uint64_t{1} << 24;
constexpr const char* kExpectedIndices = R"(expected JSON as {"0": "first class", "1": "second class"})";

/// The files of one kind that a listing leaves out: their number, and the path of the first one.
struct SkippedEntries {
  int64_t count = 0;
  fs::path first{};

  void add(const fs::path& path) {
    if (count++ == 0 || path.string() < first.string()) first = path;
  }
  void add(const SkippedEntries& other) {
    if (other.count == 0) return;
    if (count == 0 || other.first.string() < first.string()) first = other.first;
    count += other.count;
  }
};

struct LeftOut {
  std::map<ImageFormat, SkippedEntries> formats{};  ///< pictures in formats that this build cannot read
  SkippedEntries dead_links{};                      ///< links whose target does not exist
  SkippedEntries circles{};                         ///< links to a folder that contains them
  SkippedEntries others{};                          ///< pipes and other non-regular files with the name of a picture

  void add(const LeftOut& other) {
    for (const auto& [format, files] : other.formats) formats[format].add(files);
    dead_links.add(other.dead_links);
    circles.add(other.circles);
    others.add(other.others);
  }
};

std::string notice_of(const fs::path& root, const LeftOut& left_out) {
  std::string notice;
  const auto add = [&](const SkippedEntries& some, const std::string& one, const std::string& several,
                       const std::string& cause) {
    if (some.count == 0) return;
    notice += (notice.empty() ? root.string() + ": " : "; ") + std::to_string(some.count) + " " +
              (some.count == 1 ? one : several) + " skipped, such as " + some.first.lexically_relative(root).string() +
              ": " + cause;
  };
  for (const auto& [format, files] : left_out.formats) {
    add(files, format_name(format) + " file", format_name(format) + " files", reading_advice(format));
  }
  add(left_out.dead_links, "link", "links", "its target does not exist");
  add(left_out.circles, "link to a folder", "links to folders", "it points to a folder that contains it");
  add(left_out.others, "file", "files", "it is a pipe, socket or device");
  return notice;
}

/// Prints a notice. Only one rank prints it, because every rank lists the same folder.
void tell(const std::string& notice) {
  const char* rank = std::getenv("RANK");
  if (!notice.empty() && (rank == nullptr || std::string_view(rank) == "0")) {
    std::fprintf(stderr, "ddprun: %s\n", notice.c_str());
  }
}

bool is_dead_link(const fs::directory_entry& entry) {
  std::error_code error;
  return entry.is_symlink(error) && !fs::exists(fs::status(entry.path(), error));
}

/// Whether a link to a folder leads to a folder that contains the link, whichever path was used to reach it.
bool is_link_to_ancestor(const fs::directory_entry& entry) {
  std::error_code error;
  if (!entry.is_symlink(error)) return false;
  std::error_code of_target, of_parent;
  const fs::path target = fs::canonical(entry.path(), of_target);
  const fs::path parent = fs::canonical(entry.path().parent_path(), of_parent);
  if (of_target || of_parent) return false;
  return std::mismatch(target.begin(), target.end(), parent.begin(), parent.end()).first == target.end();
}

std::vector<std::string> class_folders(const fs::path& root, LeftOut& left_out) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(root, error); !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    const bool is_folder = entry->is_directory(ignored);
    if (is_folder && is_link_to_ancestor(*entry)) {
      left_out.circles.add(entry->path());
    } else if (is_folder) {
      names.push_back(entry->path().filename().string());
    } else if (is_dead_link(*entry)) {
      left_out.dead_links.add(entry->path());
    }
  }
  if (error) throw DataError(root, "cannot be read: " + error.message());
  if (names.empty()) throw DataError(root, "expected a folder per class with images in it, found no folder");
  std::sort(names.begin(), names.end());
  return names;
}

/// Identifies a folder independently of the path.
using FolderId = std::pair<dev_t, ino_t>;

FolderId id_of(const fs::path& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) {
    throw DataError(folder, "cannot be read: " + std::generic_category().message(errno));
  }
  return {status.st_dev, status.st_ino};
}

/// Returns an existing folder and all folders that contain it.
std::vector<FolderId> with_parents(const fs::path& folder) {
  std::vector<FolderId> ids;
  std::error_code error;
  const fs::path whole = fs::canonical(folder, error);
  if (error) throw DataError(folder, "cannot be read: " + error.message());
  for (fs::path each = whole;; each = each.parent_path()) {
    ids.push_back(id_of(each));
    if (each == each.root_path()) return ids;
  }
}

/// Adds a folder and the folders in it, including linked ones, but no folder that contains itself. `above` contains the
/// folders that lead to it.
void add_folders(const fs::path& folder, std::vector<FolderId>& above, std::vector<std::string>& folders,
                 LeftOut& left_out) {
  const FolderId id = id_of(folder);
  if (std::ranges::find(above, id) != above.end()) {
    left_out.circles.add(folder);
    return;
  }
  above.push_back(id);
  folders.push_back(folder.string());
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::error_code ignored;
    if (!entry->is_directory(ignored)) continue;
    if (is_link_to_ancestor(*entry)) {
      left_out.circles.add(entry->path());
    } else {
      add_folders(entry->path(), above, folders, left_out);
    }
  }
  if (error) throw DataError(folder, "cannot be read: " + error.message());
  above.pop_back();
}

/// Adds the pictures of one folder, sorted by name.
void add_images_of(const std::string& folder, std::vector<fs::path>& files, LeftOut& left_out) {
  std::vector<fs::path> images;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::error_code ignored;
    const ImageFormat format = image_format_of_name(entry->path());
    if (is_dead_link(*entry)) {
      left_out.dead_links.add(entry->path());
    } else if (format == ImageFormat::kUnknown || entry->is_directory(ignored)) {
      continue;
    } else if (!entry->is_regular_file(ignored)) {
      left_out.others.add(entry->path());
    } else if (can_read(format)) {
      images.push_back(entry->path());
    } else {
      left_out.formats[format].add(entry->path());
    }
  }
  if (error) throw DataError(folder, "cannot be read: " + error.message());
  std::sort(images.begin(), images.end(), [](const fs::path& a, const fs::path& b) { return a.string() < b.string(); });
  files.insert(files.end(), images.begin(), images.end());
}

/// As in torchvision, folders are sorted by path, and the files in each by name. `above` contains the folders that lead
/// to the root.
void add_images(const fs::path& class_folder, std::vector<FolderId>& above, std::vector<fs::path>& files,
                LeftOut& left_out) {
  std::vector<std::string> folders;
  add_folders(class_folder, above, folders, left_out);
  std::sort(folders.begin(), folders.end());
  for (const std::string& folder : folders) add_images_of(folder, files, left_out);
}

void append(ImageListing& listing, const ImageListing& from, const std::vector<size_t>& which) {
  for (const size_t i : which) {
    listing.files.push_back(from.files[i]);
    listing.labels.push_back(from.labels[i]);
  }
}

}  // namespace

ImageListing list_image_folder(const fs::path& root) {
  LeftOut left_out;
  ImageListing listing{.class_names = class_folders(root, left_out)};
  std::vector<FolderId> above = with_parents(root);
  for (size_t label = 0; label < listing.class_names.size(); ++label) {
    const fs::path folder = root / listing.class_names[label];
    LeftOut of_class;
    add_images(folder, above, listing.files, of_class);
    if (listing.files.size() == listing.labels.size()) {
      const std::string cause = notice_of(root, of_class);
      throw DataError(folder,
                      "no image (.jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff, .webp) in this class's folder" +
                          (cause.empty() ? "" : " that can be read: " + cause));
    }
    listing.labels.resize(listing.files.size(), static_cast<int64_t>(label));
    left_out.add(of_class);
  }
  listing.notice = notice_of(root, left_out);
  tell(listing.notice);
  return listing;
}

ImageSplit split_listing(const ImageListing& listing, double validation_ratio, uint64_t seed) {
  if (!(validation_ratio >= 0 && validation_ratio <= 1)) {
    throw std::invalid_argument("split_listing: expected a ratio from 0 to 1, got " + std::to_string(validation_ratio));
  }
  ImageSplit split{.train = {.class_names = listing.class_names}, .validation = {.class_names = listing.class_names}};
  for (size_t label = 0; label < listing.class_names.size(); ++label) {
    std::vector<size_t> members;
    for (size_t i = 0; i < listing.labels.size(); ++i) {
      if (listing.labels[i] == static_cast<int64_t>(label)) members.push_back(i);
    }
    const auto count = static_cast<int64_t>(members.size());
    const auto taken = static_cast<int64_t>(static_cast<double>(count) * validation_ratio);
    std::vector<bool> is_taken(members.size());
    const std::vector<int64_t> order = permutation(count, seed + label);
    for (int64_t i = 0; i < taken; ++i) is_taken[static_cast<size_t>(order[static_cast<size_t>(i)])] = true;
    std::vector<size_t> parts[2];
    for (size_t i = 0; i < members.size(); ++i) parts[is_taken[i] ? 1 : 0].push_back(members[i]);
    append(split.train, listing, parts[0]);
    append(split.validation, listing, parts[1]);
  }
  return split;
}

void write_class_indices(const fs::path& file, const std::vector<std::string>& class_names) {
  nlohmann::ordered_json indices = nlohmann::ordered_json::object();
  for (size_t i = 0; i < class_names.size(); ++i) indices[std::to_string(i)] = class_names[i];
  // If the program is terminated meanwhile or the disk is full, the old file remains.
  std::error_code ignored;
  const fs::file_status before = fs::status(file, ignored);
  const bool is_replaced = !fs::exists(before) || fs::is_regular_file(fs::symlink_status(file, ignored));
  const fs::path written = is_replaced ? fs::path(file) += ".tmp-" + std::to_string(getpid()) : file;
  const detail::BlockFileSizeSignal blocked;
  errno = 0;
  std::ofstream stream(written, std::ios::binary | std::ios::trunc);
  stream << indices.dump(4, ' ', false, json::error_handler_t::replace) << "\n";
  stream.close();
  if (stream && is_replaced && fs::exists(before)) fs::permissions(written, before.permissions(), ignored);
  if (stream && (!is_replaced || std::rename(written.c_str(), file.c_str()) == 0)) return;
  const DataError error(file, "cannot be written: " + std::generic_category().message(errno));
  if (is_replaced) fs::remove(written, ignored);
  throw error;
}

namespace {

std::vector<std::string> read_names(const fs::path& file) {
  // Deeper levels are dropped: a tree of a million empty lists would need a hundred times the size of the file.
  const auto keep = [&](int depth, json::parse_event_t event, const json&) {
    if (depth > 0 && (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start)) {
      throw DataError(file, kExpectedIndices);
    }
    return true;
  };
  const json indices = json::parse(read_small_file(file, kMaxIndexBytes), keep, /*allow_exceptions=*/false);
  if (!indices.is_object()) throw DataError(file, kExpectedIndices);
  std::vector<std::string> names;
  for (size_t i = 0; i < indices.size(); ++i) {
    const auto entry = indices.find(std::to_string(i));
    if (entry == indices.end() || !entry->is_string()) {
      throw DataError(file, "expected a name for each index from 0 to " + std::to_string(indices.size() - 1) +
                                ", found none for " + std::to_string(i));
    }
    names.push_back(entry->get<std::string>());
  }
  return names;
}

}  // namespace

std::vector<std::string> read_class_indices(const fs::path& file) {
  return with_data_errors(file, [&] { return read_names(file); });
}

}  // namespace ddp
