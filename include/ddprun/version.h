// The version of ddprun, for `#if DDPRUN_VERSION >= 200`. The project's CMakeLists.txt reads it from here.
#pragma once

/// The major number.
#define DDPRUN_VERSION_MAJOR 0
/// The minor number.
#define DDPRUN_VERSION_MINOR 1
/// The patch number.
#define DDPRUN_VERSION_PATCH 0
/// The version as a number: 10000 times the major, 100 times the minor number, and the patch number.
#define DDPRUN_VERSION (DDPRUN_VERSION_MAJOR * 10000 + DDPRUN_VERSION_MINOR * 100 + DDPRUN_VERSION_PATCH)
/// The version as text: "0.1.0".
#define DDPRUN_VERSION_STRING "0.1.0"
