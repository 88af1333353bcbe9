#!/bin/bash
# Builds Wine's wined3d.dll, which contains its Direct3D 12 (vkd3d), for DirectML: wined3d.sh SOURCES TARGET
# Two changes: shaders in DXIL are translated, although vkd3d calls that unsupported, and a device reports that it has
# no meta commands, where Wine's returns E_NOTIMPL.
set -e
sources=$(realpath "$1")
mkdir -p "$2/build"
target=$(realpath "$2")
cd "$target/build"
for archive in "$sources"/wine_*.tar.xz; do tar xf "$archive"; done
for package in "$sources"/*.deb; do dpkg-deb -x "$package" registries; done
mv wine-*/ wine
cd wine

# Debian strips what can be generated, and generates it with these patches.
for name in disable/generated-data generate/opengl generate/vulkan generate/unicode fixes/flex fixes/bison; do
    patch -p1 -s < "../debian/patches/$name.patch"
done
echo '#define VKD3D_SHADER_UNSUPPORTED_DXIL 1' >> libs/vkd3d/config.h
python3 - <<'EOF'
path = "libs/vkd3d/libs/vkd3d/device.c"
text = open(path).read()
start = text.index("d3d12_device_EnumerateMetaCommands(ID3D12Device9 *iface")
head, tail = text[:start], text[start:]
old, new = "return E_NOTIMPL;", "if (num_meta_commands) *num_meta_commands = 0;\n    return S_OK;"
open(path, "w").write(head + tail.replace(old, new, 1))
EOF
./tools/make_requests
./tools/make_specfiles
registry=$target/build/registries/usr/share
vulkan=$registry/vulkan/registry
(cd dlls/winevulkan && python3 ./make_vulkan -x "$vulkan/vk.xml" -X "$vulkan/video.xml")
(cd dlls/opengl32 && sed -i "s#/usr/share/khronos-api#$registry/khronos-api#" make_opengl && ./make_opengl)
ln -sf /usr/share/misc/config.sub /usr/share/misc/config.guess tools/
autoreconf -f

# The makefile generator wants files of other libraries that Debian strips: pictures, fonts, tables. Empty ones do.
python3 - <<'EOF'
import glob, os, re

def touch(path):
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "w").close()

for makefile in glob.glob("**/Makefile.in", recursive=True):
    folder = os.path.dirname(makefile)
    text = open(makefile, errors="replace").read().replace("\\\n", " ")
    parent = re.search(r"^PARENTSRC\s*=\s*(\S+)", text, re.M)
    for names in re.findall(r"^\w*(?:SOURCES|SRCS|FILES)\s*=\s*(.*)$", text, re.M):
        for name in names.split():
            inherited = parent and os.path.exists(os.path.join(folder, parent.group(1), name))
            if "$" not in name and not inherited:
                touch(os.path.join(folder, name))
for resource in glob.glob("**/*.rc", recursive=True):
    text = open(resource, errors="replace").read()
    for name in re.findall(r'makedep:\s*(\S+)\s*\*/|"([^"\n]+)"', text):
        name = (name[0] or name[1]).replace("\\\\", "/")
        if name.endswith((".bmp", ".ico", ".cur", ".avi", ".wav", ".png", ".mp4", ".mp3", ".mpg")):
            touch(os.path.join(os.path.dirname(resource), name))
touch("dlls/dsound/fir.h")
EOF
mkdir ../out
cd ../out
without=$(printf ' --without-%s' x freetype vulkan opengl alsa gstreamer dbus gnutls wayland pulse fontconfig cups \
    unwind usb sdl udev ffmpeg krb5 gssapi inotify pcap pcsclite v4l2 opencl netapi capi sane gphoto oss)
# Its last step stops at each of the remaining missing files: make the file, then repeat the step.
../wine/configure --enable-win64 --disable-tests $without > configure.log 2>&1 || true
until ./config.status > status.log 2>&1; do
    place=$(sed -nE 's#^(.*)/[^/]*:[0-9]+: error: .*No such file.*#\1#p' status.log | head -n 1)
    name=$(sed -nE 's#.*error: ([^:]*): No such file.*#\1#p' status.log | head -n 1 | tr -d ' ')
    if [ ! -d "$place" ] || [ -e "$place/$name" ]; then
        cat configure.log status.log
        exit 1
    fi
    mkdir -p "$(dirname "$place/$name")"
    touch "$place/$name"
done
make -j"$(nproc)" dlls/wined3d/all > make.log 2>&1 || { tail -n 20 make.log; exit 1; }
# Without the mark of Wine's own libraries, it is loaded in place of Wine's.
sed 's/Wine builtin DLL/Wine_custom__DLL/' dlls/wined3d/x86_64-windows/wined3d.dll > "$target/wined3d.dll"
x86_64-w64-mingw32-strip "$target/wined3d.dll"
rm -r "$target/build"
