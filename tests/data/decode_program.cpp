// Prints what the readers make of the files named on the command line, for comparison with Python's: for each file a
// line
// `<depth> <height> <width>` and then that many raw values to standard output, bytes of pictures (3 for each pixel,
// depth 0) or floats of NIfTI volumes, after `series` of several in a file. `list=ROOT` prints an image folder's files
// instead.
#include <cstdio>
#include <exception>
#include <string>

#include <ddprun/data/file_formats.h>
#include <ddprun/data/image.h>

#include "tests/support/catch.h"

namespace {

// "hue=0.25" and the like.
void adjust(ddp::Image& image, const std::string& what, double degree) {
  if (what == "brightness") ddp::adjust_brightness(image, degree);
  if (what == "contrast") ddp::adjust_contrast(image, degree);
  if (what == "saturation") ddp::adjust_saturation(image, degree);
  if (what == "hue") ddp::adjust_hue(image, degree);
}

ddp::Image resized(const ddp::Image& image, const std::string& how) {
  if (how == "centre") return ddp::resize_and_crop_centre(image, 256, 224);
  const size_t cross = how.find('x');
  return ddp::resize(image, {.height = image.height, .width = image.width}, std::stoll(how.substr(0, cross)),
                     std::stoll(how.substr(cross + 1)));
}

/// `<label> <path below root>` of each picture, and what is left out to standard error.
void list(const std::string& root) {
  const ddp::ImageListing listing = ddp::list_image_folder(root);
  for (size_t i = 0; i < listing.files.size(); ++i) {
    std::printf("%lld %s\n", static_cast<long long>(listing.labels[i]),
                listing.files[i].lexically_relative(root).c_str());
  }
}

void print(const std::string& path, const std::string& how) {
  const auto number = [](int64_t value) { return static_cast<long long>(value); };
  if (path.ends_with(".nii") || path.ends_with(".nii.gz")) {
    const ddp::NiftiVolume volume = ddp::read_nifti(path, {.series = how == "series"});
    std::printf("%lld %lld %lld\n", number(volume.volumes * volume.depth), number(volume.height), number(volume.width));
    std::fwrite(volume.values.data(), sizeof(float), volume.values.size(), stdout);
    return;
  }
  ddp::Image image = ddp::read_image(path);
  if (const size_t equals = how.find('='); equals != std::string::npos) {
    adjust(image, how.substr(0, equals), std::stod(how.substr(equals + 1)));
  } else if (!how.empty()) {
    image = resized(image, how);
  }
  std::printf("0 %lld %lld\n", number(image.height), number(image.width));
  std::fwrite(image.pixels.data(), 1, image.pixels.size(), stdout);
}

}  // namespace

int main(int argc, char** argv) try {
  std::string how;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("list=")) {
      list(argument.substr(5));
      continue;
    }
    if (argument == "centre" || argument == "series" || argument.find('=') != std::string::npos ||
        argument.find('.') == std::string::npos) {
      how = argument;
    } else {
      print(argument, how);
    }
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
