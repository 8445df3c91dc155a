# The page, the API and, with --upstream, the gateway. Not built yet.
#
#   docker build -t framenest .
#   docker run -p 8600:8600 -e FRAMENEST_TOKEN=$(openssl rand -hex 16) -v $PWD/lectures:/videos:ro \
#     -v framenest-data:/data -v framenest-cache:/cache framenest --upstream http://HOST:8000/v1
FROM python:3.12-slim
COPY pyproject.toml constraints.txt README.md LICENSE /framenest/
COPY src /framenest/src
RUN PIP_CONSTRAINT=/framenest/constraints.txt pip install --no-cache-dir '/framenest[tags,server]'
RUN useradd framenest && mkdir /videos /data /cache && chown framenest /data /cache
USER framenest
ENV FRAMENEST_CACHE=/cache
RUN framenest models fetch tags
EXPOSE 8600
ENTRYPOINT ["framenest", "serve", "--host", "0.0.0.0", "--videos", "/videos", "--data", "/data"]
